"""Tile programs to LLVM IR text: a straight expansion, op by op, with its own vector maths."""

from luban.codegen.llvm import emit, scratch_bytes

__all__ = ["emit", "scratch_bytes"]
