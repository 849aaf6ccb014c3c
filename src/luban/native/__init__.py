"""The LLVM toolbox: targets, compiling in a process of its own, linking, caches, threads, calls.

The only importer of llvmlite. It takes LLVM text and gives addresses; it knows no IR of ours.
"""
