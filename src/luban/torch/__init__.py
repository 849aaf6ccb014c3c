"""PyTorch: `torch.compile(model, backend="luban")`.

PyTorch finds the back end by its entry point once Luban is installed.
"""

from luban.torch.backend import backend

__all__ = ["backend"]
