"""Kernels that other people wrote, run on the CPU under the stand-in for Triton.

Nothing of a corpus is part of this project: each runner takes the path of a copy.
"""
