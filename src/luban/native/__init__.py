"""The LLVM toolbox: targets, compiling, linking, object cache, thread pool and call path.

The only importer of llvmlite. It takes LLVM text and gives addresses; it knows no IR of ours.
"""
