"""Choices that are timed on this machine instead of computed: `luban tune`."""
