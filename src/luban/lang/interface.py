"""What kernels and the layers of choice round them have in common: `kernel[grid](...)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["KernelInterface"]


class KernelInterface:
    """Everything that can be launched has `run`, and is launched as `kernel[grid](arguments)`."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """The launch on a grid."""
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch, or with `warmup` compile only."""
        raise NotImplementedError

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Compile without a launch."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)
