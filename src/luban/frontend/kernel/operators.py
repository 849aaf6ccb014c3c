"""What a kernel's values do with one another: arithmetic, moves of pointers, comparisons."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, NoReturn

from luban.frontend.kernel.promote import arithmetic, cast, compare, to_tensor
from luban.frontend.kernel.table import BUILTINS
from luban.frontend.kernel.types import ElementType, element_type
from luban.frontend.kernel.values import BlockPointer, Pointer, Tensor, is_number
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["Operators"]

_STATIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift, "**": operator.pow,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "is": operator.is_, "is not": operator.is_not,
    "in": lambda x, y: x in y, "not in": lambda x, y: x not in y,
}  # fmt: skip


class Operators:
    """Operators of the language on static values and those of the run. `b` takes what is built."""

    b: FunctionBuilder

    def fail(
        self, message: str, *, hint: str | None = None, node: ast.AST | None = None
    ) -> NoReturn:
        """Raise KernelError at a node, or where the kernel is."""
        raise NotImplementedError

    def binary(self, sign: str, left: Any, right: Any) -> Any:
        """`left sign right`."""
        if isinstance(left, Pointer) or isinstance(right, Pointer):
            return self._move(sign, left, right)
        if isinstance(left, BlockPointer) or isinstance(right, BlockPointer):
            self.fail("arithmetic on a block pointer", hint="move it with tl.advance")
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            for side in (left, right):
                if not isinstance(side, Tensor) and not is_number(side):
                    self.fail(f"{self.said(left)} {sign} {self.said(right)}: expected numbers")
            if sign == "**":
                return BUILTINS["libdevice.pow"].run(self, left, right)
            if sign not in _STATIC:
                self.fail(f"{sign} is not part of the language", hint="use tl.dot")
            return arithmetic(self.b, sign, left, right)
        try:
            return _STATIC[sign](left, right)
        except (TypeError, ZeroDivisionError, KeyError) as error:
            self.fail(f"{self.said(left)} {sign} {self.said(right)}: {error}")

    def _move(self, sign: str, left: Any, right: Any) -> Any:
        """Pointer arithmetic: offsets count elements."""
        if isinstance(left, Pointer) and isinstance(right, Pointer):
            self.fail(f"{left} {sign} {right}: expected a pointer and integers")
        if isinstance(right, Pointer):
            if sign != "+":
                self.fail(f"integer {sign} pointer, expected +")
            left, right = right, left
        if sign not in ("+", "-") or not isinstance(left, Pointer):
            self.fail(f"{self.said(left)} {sign} {self.said(right)}: expected + or -")
        steps = self.integer(right)
        moved = left.offsets + steps if sign == "+" else left.offsets - steps
        return left.moved(moved)

    def integer(self, value: Any) -> Expr:
        """An integer, of the run or static, as i64."""
        if isinstance(value, Tensor):
            if not value.type.is_int():
                self.fail(f"{value}, expected integers")
            return self.b.cast(value.expr, "i64")
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"{self.said(value)}, expected integers")
        return self.b.constant(value)

    def compare(self, sign: str, left: Any, right: Any) -> Any:
        """`left sign right`, a truth value."""
        run_time = isinstance(left, Tensor) or isinstance(right, Tensor)
        pointers = isinstance(left, (Pointer, BlockPointer)) or isinstance(
            right, (Pointer, BlockPointer)
        )
        if sign in ("is", "is not", "in", "not in") or (pointers and None in (left, right)):
            return _STATIC["is" if sign == "==" else "is not" if sign == "!=" else sign](
                left, right
            )
        if not run_time:
            types = element_type(left), element_type(right)
            if None not in types:
                left, right = types
            return _STATIC[sign](left, right)
        if left is None or right is None:
            return sign == "!="
        for side in (left, right):
            if not isinstance(side, Tensor) and not is_number(side):
                self.fail(f"{self.said(left)} {sign} {self.said(right)}: expected numbers")
        return compare(self.b, sign, left, right)

    def truth(self, value: Any) -> Tensor:
        """A value as int1."""
        if not isinstance(value, Tensor):
            return to_tensor(self.b, bool(value))
        return value if value.type.is_bool() else compare(self.b, "!=", value, 0)

    def cast(self, value: Any, wanted: ElementType) -> Tensor:
        """A number or tensor in a type."""
        if is_number(value):
            return to_tensor(self.b, value, wanted)
        if not isinstance(value, Tensor):
            self.fail(f"{self.said(value)}, expected numbers")
        return cast(self.b, value, wanted)

    def tensor(self, value: Any, what: str = "operand") -> Tensor:
        """A value that must be numbers."""
        if isinstance(value, Tensor):
            return value
        if is_number(value):
            return to_tensor(self.b, value)
        self.fail(f"{what} is {self.said(value)}, expected numbers")

    def said(self, value: Any) -> str:
        """A value as errors and prints name it."""
        if isinstance(value, (Tensor, Pointer, BlockPointer, ElementType)):
            return str(value)
        if isinstance(value, tuple):
            return "(" + ", ".join(map(self.said, value)) + ")"
        name = getattr(value, "__name__", None)
        return str(name) if name and not isinstance(value, type) else repr(value)
