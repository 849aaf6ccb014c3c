"""Luban: compile, check and run AI models and kernels, in Python."""

__version__ = "0.1.0"

__all__ = ["__version__"]
