"""Fetching ahead of products: what both kinds of kernel share.

Weights that are too many for the second cache arrive from memory while the first register tile
over them waits, and memory waits during the others, which read the same rows again. So every tile
fetches a share of what is multiplied next: as many bytes a step as the whole needs.
"""

from __future__ import annotations

__all__ = ["FAR_BYTES", "SECOND_CACHE"]

FAR_BYTES = 1 << 20  # of weights: beyond, the next ones are not in the second cache
# Where to fetch to, as a locality: what is needed next would push the present rows out of the
# first cache, and makes kernels slower than without.
SECOND_CACHE = 2
