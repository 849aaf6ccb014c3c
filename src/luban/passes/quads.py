"""Products of bytes in groups of four: u8 times i8, as the instructions for them want it.

Other signs move into this form by 128: with b = b' + 128 and a = a' - 128,
sum a b = sum a b' + 128 sum a, and sum a b' = sum a' b' - 128 sum b'. Both are exact modulo 2**32,
as the sums themselves are; what depends on constants alone is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass

from luban.core import dims
from luban.core.dims import DimLike
from luban.core.dtypes import DType
from luban.graph import build
from luban.ir.node import Node

__all__ = ["GROUP", "Factors", "byte_factors", "takes_quads", "whole_groups"]

GROUP = 4
_HALF = 128


def takes_quads(lhs: DType, rhs: DType, result: DType) -> bool:
    """True if sums of these products are sums of groups of four.

    >>> from luban.core.dtypes import DTYPES as d
    >>> takes_quads(d["i8"], d["u8"], d["i32"]), takes_quads(d["i8"], d["i8"], d["i8"])
    (True, False)
    """
    bytes_only = lhs.name in ("i8", "u8") and rhs.name in ("i8", "u8")
    return bytes_only and result.name == "i32"


@dataclass(frozen=True, slots=True)
class Factors:
    """u8 [..., K] and i8 [*B, K, N] of K products, a multiple of 4, and what their sums lack.

    row_share      to add to every sum of a row, i32[..., 1], or None
    column_share   to add to every sum of a column, i32[*B, 1, N], or None
    """

    rows: Node
    matrix: Node
    row_share: Node | None
    column_share: Node | None

    def corrected(self, sums: Node) -> Node:
        """The sums as those of the given factors. Shares come first: they then run before."""
        for share in (self.column_share, self.row_share):
            if share is not None:
                sums = build.add(share, sums)
        return sums


def byte_factors(rows: Node, matrix: Node) -> Factors:
    """Bytes of any signs, rows [..., K] and matrix [*B, K, N], as factors of a kernel."""
    row_share: Node | None = None
    column_share: Node | None = None
    if matrix.tensor.dtype.name == "u8":
        matrix = _flipped(matrix, "i8")
        sums = build.reduce("sum", build.cast(rows, "i32"), [rows.tensor.rank - 1], keep_axes=True)
        row_share = build.multiply(sums, _HALF)
    if rows.tensor.dtype.name == "i8":
        rows = _flipped(rows, "u8")
        axis = matrix.tensor.rank - 2
        sums = build.reduce("sum", build.cast(matrix, "i32"), [axis], keep_axes=True)
        column_share = build.multiply(sums, -_HALF)
    return Factors(
        whole_groups(rows, -1, GROUP), whole_groups(matrix, -2, GROUP), row_share, column_share
    )


def _flipped(x: Node, element: str) -> Node:
    """Bytes moved by 128 into the range of the other sign: the highest bit is the other one."""
    bits = build.bitcast(x, "u8") if x.tensor.dtype.name == "i8" else x
    moved = build.bitwise_xor(bits, _HALF)
    return moved if element == "u8" else build.bitcast(moved, "i8")


def whole_groups(x: Node, axis: int, group: int) -> Node:
    """x with zeros behind an axis up to a multiple of `group`."""
    rank = x.tensor.rank
    high: list[DimLike] = [0] * rank
    size = x.tensor.shape[axis % rank]
    high[axis % rank] = dims.ceil_div(size, group) * group - size
    return build.pad(x, (0,) * rank, high, build.constant(0, x.tensor.dtype))
