"""Fetching ahead of products: what both kinds of kernel share.

The second cache holds the weights of a few layers at most, so those of the next one arrive from
further away in every call. The first register tile over them would wait, and memory would wait
during the others, which read the same rows again. So every tile fetches a share of what is
multiplied next.
"""

from __future__ import annotations

__all__ = ["FAR_BYTES", "LINE_BYTES", "SECOND_CACHE"]

LINE_BYTES = 64  # of a cache
FAR_BYTES = 1 << 17  # of weights: fewer are read before it pays
# Where to fetch to, as a locality: what is needed next would push the present rows out of the
# first cache, and makes kernels slower than without.
SECOND_CACHE = 2
