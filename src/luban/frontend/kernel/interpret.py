"""Runs a kernel's syntax tree once: computes what is known, builds a block program of the rest."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

from luban.core.errors import LubanError
from luban.frontend.kernel import control
from luban.frontend.kernel.constexpr import Constexpr, unwrap
from luban.frontend.kernel.errors import KernelError
from luban.frontend.kernel.operators import Operators
from luban.frontend.kernel.promote import arithmetic, to_tensor
from luban.frontend.kernel.source import MISSING, KernelSource, source_of
from luban.frontend.kernel.table import BUILTINS, Builtin, lookup
from luban.frontend.kernel.types import ElementType, element_type
from luban.frontend.kernel.values import BlockPointer, Pointer, RunTime, Tensor, is_number
from luban.tile.builder import FunctionBuilder
from luban.tile.expr import Expr

__all__ = ["Interpreter"]

_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.Pow: "**",
}  # fmt: skip
_COMPARES: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_MAX_DEPTH = 64


class Interpreter(Operators):
    """One function being run: its names, and the program that it builds."""

    def __init__(
        self,
        b: FunctionBuilder,
        source: KernelSource,
        names: dict[str, Any],
        grid: Sequence[Expr],
        *,
        checks: bool = False,
        outer: Interpreter | None = None,
    ) -> None:
        self.b = b
        self.source = source
        self.names = names
        self.grid = tuple(grid)
        self.checks = checks
        self.outer = outer
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.returned: bool = False
        self.result: Any = None
        self.node: ast.AST = source.tree

    # Errors

    def fail(
        self, message: str, *, hint: str | None = None, node: ast.AST | None = None
    ) -> NoReturn:
        """Raise KernelError at a node, or where the interpreter is."""
        raise KernelError(message, hint=hint, place=self.source.place, node=node or self.node)

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Errors inside are at this node unless they say better."""
        outer, outer_loc = self.node, self.b.loc
        self.node = node
        self.b.loc = self.source.place.loc(node)
        try:
            yield
        except KernelError:
            raise
        except LubanError as error:
            raise KernelError(
                error.message, hint=error.hint, place=self.source.place, node=self.node
            ) from error
        self.node, self.b.loc = outer, outer_loc

    # Statements

    def run(self) -> Any:
        """Run the whole body; gives what it returns."""
        self.block(self.source.tree.body)
        return self.result

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Statements in order, up to a return. An `if` that may return takes the rest along."""
        for place, statement in enumerate(statements):
            if self.returned:
                return
            if isinstance(statement, ast.If) and control.may_return(statement):
                with self.at(statement):
                    control.branch(self, statement, statements[place + 1 :])
                return
            self.statement(statement)

    def statement(self, statement: ast.stmt) -> None:
        """One statement."""
        handler = getattr(self, f"_do_{type(statement).__name__}", None)
        with self.at(statement):
            if handler is None:
                self.fail(
                    f"{type(statement).__name__.lower()} statements are not part of the language",
                    hint="kernels have assignments, if, for, while, return and calls",
                )
            handler(statement)

    def _do_Expr(self, statement: ast.Expr) -> None:
        if not isinstance(statement.value, ast.Constant):  # a docstring
            self.value(statement.value)

    def _do_Pass(self, statement: ast.Pass) -> None:
        del statement

    def _do_Assign(self, statement: ast.Assign) -> None:
        found = self.value(statement.value)
        for target in statement.targets:
            self.assign(target, found)

    def _do_AnnAssign(self, statement: ast.AnnAssign) -> None:
        if statement.value is not None:
            self.assign(statement.target, self.value(statement.value))

    def _do_AugAssign(self, statement: ast.AugAssign) -> None:
        left = ast.copy_location(
            ast.Name(statement.target.id, ast.Load())
            if isinstance(statement.target, ast.Name)
            else statement.target,
            statement.target,
        )
        right = self.value(statement.value)
        self.assign(
            statement.target, self.binary(_SIGNS[type(statement.op)], self.value(left), right)
        )

    def _do_Return(self, statement: ast.Return) -> None:
        self.result = None if statement.value is None else self.value(statement.value)
        self.returned = True

    def _do_If(self, statement: ast.If) -> None:
        control.branch(self, statement, ())

    def _do_For(self, statement: ast.For) -> None:
        control.for_loop(self, statement)

    def _do_While(self, statement: ast.While) -> None:
        control.while_loop(self, statement)

    def _do_Assert(self, statement: ast.Assert) -> None:
        test = self.value(statement.test)
        message = "" if statement.msg is None else str(unwrap(self.value(statement.msg)))
        if not isinstance(test, Tensor):
            if not test:
                self.fail(f"assert: {message or ast.unparse(statement.test)}")
            return
        BUILTINS["device_assert"].run(self, test, message)

    def assign(self, target: ast.expr, value: Any) -> None:
        """Bind a name, or the names of a tuple."""
        match target:
            case ast.Name(id=name):
                self.names[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                if not isinstance(value, (tuple, list)):
                    self.fail(
                        f"{self.said(value)} has no parts, expected {len(parts)}", node=target
                    )
                if len(value) != len(parts):
                    self.fail(f"{len(value)} values for {len(parts)} names", node=target)
                for part, item in zip(parts, value, strict=True):
                    self.assign(part, item)
            case _:
                self.fail(
                    "only names and tuples of names can be assigned to",
                    hint="use tl.store for memory, tl.where for elements of a block",
                    node=target,
                )

    # Expressions

    def value(self, node: ast.expr) -> Any:
        """What an expression is: a static value or one of the run."""
        handler = getattr(self, f"_value_{type(node).__name__}", None)
        with self.at(node):
            if handler is None:
                self.fail(f"{type(node).__name__} is not part of the language")
            return unwrap(handler(node))

    def _value_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def _value_Name(self, node: ast.Name) -> Any:
        if node.id in self.names:
            return self.names[node.id]
        found = self.source.lookup(node.id)
        if found is MISSING:
            self.fail(
                f"{node.id} is not defined here",
                hint="a name that only one branch of a run-time `if` defines ends with that branch",
            )
        return found

    def _value_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._items(node.elts))

    def _value_List(self, node: ast.List) -> Any:
        return self._items(node.elts)

    def _items(self, nodes: Sequence[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found.extend(self.value(node.value))
            else:
                found.append(self.value(node))
        return found

    def _value_JoinedStr(self, node: ast.JoinedStr) -> str:
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                parts.append(self.said(self.value(part.value)))
            else:
                parts.append(str(self.value(part)))
        return "".join(parts)

    def _value_Attribute(self, node: ast.Attribute) -> Any:
        return self.attribute(self.value(node.value), node.attr)

    def attribute(self, owner: Any, name: str) -> Any:
        """`owner.name`."""
        if isinstance(owner, (Tensor, Pointer, BlockPointer)):
            return self._run_time_attribute(owner, name)
        if name == "value" and isinstance(owner, bool | int | float | str | ElementType | None):
            return owner  # of a constant: constants are not wrapped here
        if isinstance(owner, ElementType | bool | int | float) and name == "to":
            return _Method(BUILTINS["cast"], owner)
        found = getattr(owner, name, MISSING)
        if found is MISSING:
            known = element_type(owner)
            found = getattr(known, name, MISSING) if known is not None else MISSING
        if found is MISSING:
            if isinstance(owner, ModuleType) or "triton" in str(type(owner)):
                self.fail(f"{self.said(owner)} has no {name}, or it is not part of this level")
            self.fail(f"{self.said(owner)} has no attribute {name}")
        return found

    def _run_time_attribute(self, owner: RunTime, name: str) -> Any:
        if name == "shape":
            return owner.shape
        if name in ("dtype", "type"):
            return owner.type
        if name == "T" and isinstance(owner, Tensor):
            return BUILTINS["trans"].run(self, owner)
        if name == "numel":
            count = 1
            for extent in owner.shape:
                count *= extent
            return count
        found = BUILTINS.get(name)
        if isinstance(owner, BlockPointer) and name in ("load", "store"):
            return _Method(BUILTINS[f"{name}_tensor_descriptor"], owner)
        if found is None or not found.method:
            self.fail(f"{owner} has no attribute {name}")
        return _Method(found, owner)

    def _value_Subscript(self, node: ast.Subscript) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, (Tensor, Pointer)):
            return control.index_block(self, owner, node.slice)
        if isinstance(node.slice, ast.Slice):
            parts = (node.slice.lower, node.slice.upper, node.slice.step)
            return owner[slice(*[None if p is None else self.static(p) for p in parts])]
        where = self.value(node.slice)
        if isinstance(where, (Tensor, Pointer)):
            self.fail("an index that only the run knows, expected a constant")
        return owner[where]

    def _value_IfExp(self, node: ast.IfExp) -> Any:
        test = self.value(node.test)
        if not isinstance(test, Tensor):
            return self.value(node.body if test else node.orelse)
        return control.choose(self, test, node.body, node.orelse)

    def _value_BoolOp(self, node: ast.BoolOp) -> Any:
        sign = "&" if isinstance(node.op, ast.And) else "|"
        found = self.value(node.values[0])
        for part in node.values[1:]:
            if not isinstance(found, Tensor):
                if bool(found) == (sign == "|"):
                    return found
                found = self.value(part)
                continue
            other = self.value(part)
            if not isinstance(other, Tensor):
                if isinstance(other, (bool, int)) and bool(other) == (sign == "&"):
                    continue
                found = to_tensor(self.b, bool(other)) if is_number(other) else other
                continue
            found = arithmetic(self.b, sign, self.truth(found), self.truth(other))
        return found

    def _value_UnaryOp(self, node: ast.UnaryOp) -> Any:
        operand = self.value(node.operand)
        if not isinstance(operand, Tensor):
            if isinstance(operand, (Pointer, BlockPointer)):
                self.fail(f"{operand} has no sign")
            match node.op:
                case ast.USub():
                    return -operand
                case ast.UAdd():
                    return +operand
                case ast.Not():
                    return not operand
                case _:
                    return ~operand
        match node.op:
            case ast.USub():
                if operand.type.is_floating():
                    return Tensor(self.b.unary("neg", operand.expr))
                return arithmetic(self.b, "-", 0, operand)
            case ast.Not():
                return Tensor(self.b.unary("not", self.truth(operand).expr))
            case ast.Invert():
                if operand.type.is_floating():
                    self.fail(f"~ of {operand}, expected integers")
                return Tensor(self.b.unary("not", operand.expr))
            case _:
                return operand

    def _value_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        return self.binary(_SIGNS.get(type(node.op), "@"), left, right)

    def _value_Compare(self, node: ast.Compare) -> Any:
        left = self.value(node.left)
        found: Any = True
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(part)
            step = self.compare(_COMPARES[type(op)], left, right)
            if isinstance(found, Tensor) and isinstance(step, Tensor):
                found = arithmetic(self.b, "&", found, step)
            elif found is True or isinstance(step, Tensor):
                found = step if found else found
            else:
                found = found and step
            left = right
        return found

    def static(self, node: ast.expr) -> Any:
        """An expression that must be known when the kernel is compiled."""
        found = self.value(node)
        if isinstance(found, (Tensor, Pointer, BlockPointer)):
            self.fail(f"{found} is known at run time only, expected a constant", node=node,
                      hint="declare the parameter as tl.constexpr")  # fmt: skip
        return found

    # Calls

    def _value_Call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        arguments = self._items(node.args)
        keywords = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                keywords.update(self.value(keyword.value))
            else:
                keywords[keyword.arg] = self.value(keyword.value)
        return self.call(function, arguments, keywords)

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Call a function of the language, a kernel's helper, or a Python function of constants."""
        if isinstance(function, _Method):
            return self.call(function.builtin, [function.owner, *arguments], keywords)
        row = lookup(function)
        if row is not None:
            return self._call_builtin(row, arguments, keywords)
        source = source_of(function)
        run_time = _holds_run_time((arguments, list(keywords.values())))
        if source is not None and (run_time or not _is_host_function(source)):
            return self.inline(source, arguments, keywords)
        replaced = BUILTINS.get(f"python.{getattr(function, '__name__', '')}")
        if replaced is not None and (run_time or function is print):
            return self._call_builtin(replaced, arguments, keywords)
        if function in (Constexpr,) or getattr(function, "__name__", "") == "constexpr":
            return unwrap(arguments[0])
        if source is not None:
            function = source.function
        if run_time:
            self.fail(
                f"{self.said(function)} is a Python function, called with values of the run",
                hint="decorate it with @luban.lang.jit, or call it with constants only",
            )
        try:
            return function(*arguments, **keywords)
        except LubanError:
            raise
        except Exception as error:  # noqa: BLE001 - the user's own function may raise anything
            self.fail(f"{self.said(function)}: {type(error).__name__}: {error}")

    def _call_builtin(self, row: Builtin, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        for hint in ("_builder", "_semantic", "_generator"):
            keywords.pop(hint, None)
        try:
            return row.run(self, *arguments, **keywords)
        except TypeError as error:
            if "argument" not in str(error):
                raise
            text = str(error).partition("() ")[2] or str(error)
            self.fail(f"{row.name}: {text}", hint=f"it is called as {row.signature}")

    def inline(
        self, source: KernelSource, arguments: Sequence[Any], keywords: dict[str, Any]
    ) -> Any:
        """Run another kernel function in place of its call."""
        if self.depth >= _MAX_DEPTH:
            self.fail(f"{source.name} calls itself, or nests deeper than {_MAX_DEPTH} calls")
        names = source.bind(tuple(arguments), keywords)
        names = {name: unwrap(value) for name, value in names.items()}
        inner = Interpreter(self.b, source, names, self.grid, checks=self.checks, outer=self)
        loc = self.b.loc
        found = inner.run()
        self.b.loc = loc
        return found


class _Method:
    """`x.sum`: a function of the language with its first argument."""

    def __init__(self, row: Builtin, owner: Any) -> None:
        self.builtin = row
        self.owner = owner


def _holds_run_time(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_run_time, value))
    return isinstance(value, (Tensor, Pointer, BlockPointer))


def _is_host_function(source: KernelSource) -> bool:
    """Whether a helper can be run by Python: cdiv and the like have no calls of the language."""
    return not any(isinstance(n, ast.Attribute) for n in ast.walk(source.tree))
