"""Whole models on every path that can run them."""
