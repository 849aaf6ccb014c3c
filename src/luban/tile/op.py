"""What every tile op is, and the checks that `infer` of the ops share."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from luban.core.dtypes import DType
from luban.core.errors import DTypeError, OptionError, ShapeError
from luban.tile.types import BOOL, I64, TileType

__all__ = ["TileOp"]


class TileOp:
    """The attributes of one operation. Every op is a frozen dataclass that derives from this.

    `infer` checks the operand types and gives the result types; it raises DTypeError, ShapeError or
    OptionError with the op's mnemonic in front. `mnemonic` is the op's name in the text form:
    `name`, or the kind for elementwise ops.
    """

    __slots__ = ()

    name: ClassVar[str]
    pure: ClassVar[bool] = True  # same operands, same results; no memory; may be dropped or shared
    in_registers: ClassVar[bool] = True  # False: of block programs only, lowering takes it away

    @property
    def mnemonic(self) -> str:
        """The op's name in the text form."""
        return self.name

    def infer(self, *types: TileType) -> tuple[TileType, ...]:
        """The result types for these operand types."""
        return self._infer(*types)

    def _infer(self, *types: TileType) -> tuple[TileType, ...]:
        raise NotImplementedError

    def fail_dtype(self, message: str, hint: str | None = None) -> NoReturn:
        """Raise DTypeError in the name of this op."""
        raise DTypeError(f"tile {self.mnemonic}: {message}", hint=hint)

    def fail_shape(self, message: str, hint: str | None = None) -> NoReturn:
        """Raise ShapeError in the name of this op."""
        raise ShapeError(f"tile {self.mnemonic}: {message}", hint=hint)

    def fail_option(self, message: str, hint: str | None = None) -> NoReturn:
        """Raise OptionError in the name of this op."""
        raise OptionError(f"tile {self.mnemonic}: {message}", hint=hint)

    def expect_count(
        self, types: tuple[TileType, ...], least: int, most: int | None = None
    ) -> None:
        """Refuse a wrong number of operands."""
        most = least if most is None else most
        if not least <= len(types) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            self.fail_shape(f"got {len(types)} operands, expected {wanted}")

    def expect_same(self, types: tuple[TileType, ...]) -> TileType:
        """Refuse operands of different types; returns the common one."""
        first = types[0]
        for other in types[1:]:
            if other is not first and other != first:
                self.fail_shape(
                    f"operands are {', '.join(map(str, types))}, expected equal types",
                    "broadcast or cast first: only the builder broadcasts by itself",
                )
        return first

    def expect_i64(self, what: str, given: TileType) -> None:
        """Refuse anything but one i64."""
        if given != I64:
            self.fail_dtype(f"{what} is {given}, expected i64", "addresses count elements in i64")

    def expect_bool(self, what: str, given: TileType) -> None:
        """Refuse anything but one bool."""
        if given != BOOL:
            self.fail_dtype(f"{what} is {given}, expected bool", "compare first")

    def expect_axis(self, axis: int, given: TileType) -> None:
        """Refuse an axis outside the tile."""
        if not 0 <= axis < len(given.shape):
            self.fail_shape(f"axis {axis} of {given}, expected 0 to {len(given.shape) - 1}")


def computes(elem: DType) -> bool:
    """True for types that arithmetic works on: integers and floats of at least 8 and 16 bits.

    Narrower ones (fp8, i4, ...) are storage: loaded, stored, moved, selected and cast only.
    """
    return (elem.is_integer and elem.bits >= 8) or (elem.is_float and elem.bits >= 16)


# The element types that a kind accepts, by the word that errors and documentation use.
def accepts(domain: str, elem: DType) -> bool:
    """True when an elementwise kind of this domain works on `elem`.

    Domains: "float", "integer", "number" (both), "bits" (integer or bool), "any" (number or bool).
    """
    if elem.kind == "bool":
        return domain in ("bits", "any")
    if not computes(elem):
        return False
    if elem.is_float:
        return domain in ("float", "number", "any")
    return domain != "float"
