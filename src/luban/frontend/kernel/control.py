"""Control flow of kernels: what is known is followed, what only the run knows becomes regions.

Names that a loop body assigns, and that exist before it, are carried; names that both ways of a
branch leave behind are merged. Everything that is merged or carried keeps its type.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from luban.frontend.kernel.errors import KernelError
from luban.frontend.kernel.promote import common_type, number_type
from luban.frontend.kernel.table import lookup
from luban.frontend.kernel.values import BlockPointer, Pointer, Tensor, is_number
from luban.tile.expr import Block, Expr
from luban.tile.function import Value
from luban.tile.memory_ops import For, If, While
from luban.tile.types import BOOL, I64

if TYPE_CHECKING:
    from luban.frontend.kernel.interpret import Interpreter

__all__ = ["branch", "choose", "for_loop", "index_block", "may_return", "while_loop"]

_RESULT = "the result"


def may_return(statement: ast.stmt) -> bool:
    """Whether a statement has a return in it."""
    return any(isinstance(node, ast.Return) for node in ast.walk(statement))


def _assigned(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that statements may bind, those of declared constants left out."""
    found = set()
    constants = set()
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            if isinstance(node, ast.AnnAssign) and "constexpr" in ast.unparse(node.annotation):
                constants.add(ast.unparse(node.target))
    return found - constants


# Values as lists of expressions, and back


def _flatten(run: Interpreter, value: Any) -> list[Expr]:
    """What of a value only the run knows; Python numbers become tensors."""
    match value:
        case Tensor(expr=expr):
            return [expr]
        case Pointer(offsets=offsets):
            return [offsets]
        case BlockPointer():
            return [value.base.offsets, *value.offsets]
        case tuple() | list():
            return [part for item in value for part in _flatten(run, item)]
    return [run.tensor(value).expr] if is_number(value) else []


def _rebuild(template: Any, parts: Iterator[Expr]) -> Any:
    """A value like `template`, made of new expressions."""
    match template:
        case Tensor():
            return Tensor(next(parts))
        case Pointer():
            return template.moved(next(parts))
        case BlockPointer():
            base = template.base.moved(next(parts))
            return replace(
                template, base=base, offsets=tuple(next(parts) for _ in template.offsets)
            )
        case tuple() | list():
            return tuple(_rebuild(item, parts) for item in template)
    return Tensor(next(parts)) if is_number(template) else template


def _alike(run: Interpreter, name: str, template: Any, value: Any) -> Any:
    """A value in the form of another one; numbers take its type. Fails where it cannot be."""
    match template, value:
        case Tensor(), Tensor() if template.expr.type == value.expr.type:
            return value
        case Tensor(), _ if is_number(value) and not template.shape:
            return run.cast(value, template.type)
        case Pointer(), Pointer() if template.base.value is value.base.value:
            if template.shape == value.shape:
                return value
        case Pointer(), Pointer():
            run.fail(
                f"{name} points to {template.base.value.name} and to {value.base.value.name}",
                hint="a pointer keeps its parameter: choose between loaded values instead",
            )
        case BlockPointer(), BlockPointer() if template.base.base.value is value.base.base.value:
            return value
        case ((tuple() | list()), (tuple() | list())) if len(template) == len(value):
            return tuple(_alike(run, name, t, v) for t, v in zip(template, value, strict=True))
        case _ if not isinstance(template, (Tensor, Pointer, BlockPointer)) and template == value:
            return value
    run.fail(
        f"{name} was {run.said(template)}, and becomes {run.said(value)}",
        hint="what a loop carries or a branch sets keeps its type and shape: cast it, or use "
        "another name",
    )


@contextmanager
def _again(run: Interpreter, block: Block) -> Iterator[None]:
    """Append to a block that was closed."""
    block.keys = []
    run.b.blocks.append(block)
    yield
    run.b.close_block()


# Branches


class _Way:
    """One way of a branch that the run decides: its block and what it leaves behind."""

    def __init__(self, run: Interpreter, names: dict[str, Any], body: Callable[[], Any]) -> None:
        run.names = dict(names)
        run.returned, run.result = False, None
        self.block = run.b.open_block()
        self.value = body()
        run.b.close_block()
        self.names = run.names
        self.returned, self.result = run.returned, run.result


def _two_ways(
    run: Interpreter, test: Tensor, first: Callable[[], Any], second: Callable[[], Any]
) -> tuple[_Way, _Way]:
    """Run both ways, merge their names, build the `If`."""
    if test.shape:
        run.fail(
            f"the condition is {test}, expected one number",
            hint="use tl.where to choose element by element",
        )
    condition = run.truth(test).expr
    before = run.names
    ways = _Way(run, before, first), _Way(run, before, second)
    one, two = (way.names for way in ways)
    if ways[0].returned and not ways[1].returned:
        one = two
    elif ways[1].returned and not ways[0].returned:
        two = one
    merged = dict(before)
    pending: list[tuple[str, Any, Any]] = []
    for name in [n for n in one if n in two]:
        if one[name] is two[name] or _same_static(one[name], two[name]):
            merged[name] = one[name]
        else:
            pending.append((name, one[name], two[name]))
    for name in before:
        if name not in one or name not in two:
            merged.pop(name, None)
    yields: tuple[list[Value], list[Value]] = ([], [])
    templates = []
    for name, left, right in pending:
        template = _template(run, name, left, right)
        templates.append((name, template))
        for way, value, out in zip(ways, (left, right), yields, strict=True):
            with _again(run, way.block):
                parts = _flatten(run, _alike(run, name, template, value))
                out.extend(part.value for part in parts)
    types = tuple(value.type for value in yields[0])
    regions = [way.block.region((), out) for way, out in zip(ways, yields, strict=True)]
    results = iter(run.b.emit(If(types), condition.value, regions=regions))
    for name, template in templates:
        merged[name] = _rebuild(template, results)
    run.names = merged
    return ways


def _same_static(left: Any, right: Any) -> bool:
    run_time = (Tensor, Pointer, BlockPointer)
    if isinstance(left, (*run_time, tuple)) or isinstance(right, (*run_time, tuple)):
        return False
    return type(left) is type(right) and bool(left == right)


def _template(run: Interpreter, name: str, left: Any, right: Any) -> Any:
    """What both values of a name become: the form of the one that is no plain number."""
    if is_number(left) and is_number(right):
        wanted = common_type(number_type(left), number_type(right))
        return run.cast(left, wanted)
    both = isinstance(left, (tuple, list)) and isinstance(right, (tuple, list))
    if both and len(left) == len(right):
        return tuple(_template(run, name, x, y) for x, y in zip(left, right, strict=True))
    return right if is_number(left) else left


def branch(run: Interpreter, node: ast.If, rest: Sequence[ast.stmt]) -> None:
    """`if`: the way that is known, or both. `rest` follows where a way does not return."""
    test = run.value(node.test)
    if not isinstance(test, Tensor):
        run.block([*(node.body if test else node.orelse), *rest])
        return
    returns = may_return(node)

    def way(statements: Sequence[ast.stmt]) -> Callable[[], Any]:
        def body() -> None:
            run.block([*statements, *rest])
            run.names[_RESULT] = run.result

        return body if returns else lambda: run.block(statements)

    outside = run.names
    if not returns:
        _two_ways(run, test, way(node.body), way(node.orelse))
        run.returned = False
        return
    run.names = {**outside}
    ways = _two_ways_with_result(run, test, way(node.body), way(node.orelse))
    run.result = ways
    run.returned = True


def _two_ways_with_result(
    run: Interpreter, test: Tensor, first: Callable[[], Any], second: Callable[[], Any]
) -> Any:
    """Both ways up to the end of the function; gives what it returns."""

    def only_result(body: Callable[[], Any]) -> Callable[[], Any]:
        def inner() -> None:
            body()
            result = run.names[_RESULT]
            run.names = {_RESULT: result}
            run.returned = False

        return inner

    names = run.names
    run.names = {**names}
    _two_ways(run, test, only_result(first), only_result(second))
    return run.names.get(_RESULT)


def choose(run: Interpreter, test: Tensor, first: ast.expr, second: ast.expr) -> Any:
    """`a if test else b`, where the run decides."""

    def way(node: ast.expr) -> Callable[[], Any]:
        def body() -> None:
            run.names[_RESULT] = run.value(node)

        return body

    _two_ways(run, test, way(first), way(second))
    return run.names.pop(_RESULT)


# Loops


def _set_first(statements: Sequence[ast.stmt]) -> set[str]:
    """The names that statements assign, whatever happens, before they read them."""
    found: set[str] = set()
    read: set[str] = set()
    for statement in statements:
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        loads = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        if isinstance(statement, ast.Assign):
            read |= loads
            stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
            found |= stored - read
        else:
            read |= loads | _assigned([statement])
    return found


def _read_after(run: Interpreter, loop: ast.For | ast.While) -> set[str]:
    """The names that may be read after a loop, or in a later turn of a loop around it."""
    own = set(map(id, ast.walk(loop)))
    around = any(
        id(loop) in set(map(id, ast.walk(outer))) and outer is not loop
        for outer in ast.walk(run.source.tree)
        if isinstance(outer, (ast.For, ast.While))
    )
    end = loop.end_lineno or 0
    return {
        node.id
        for node in ast.walk(run.source.tree)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and id(node) not in own
        and (around or node.lineno > end)
    }


class _Carried:
    """The names that a loop carries: their values before, as regions take and give them.

    A name that every turn sets before it reads it, and that nothing reads later, is the turn's own.
    """

    def __init__(
        self, run: Interpreter, loop: ast.For | ast.While, without: frozenset[str] = frozenset()
    ) -> None:
        self.run = run
        statements = loop.body
        if any(may_return(statement) for statement in statements):
            run.fail("return inside a loop that the run counts", hint="set a name, return after it")
        names = _assigned(statements) - without
        self.own = _set_first(statements) if isinstance(loop, ast.For) else set()
        self.lost: set[str] = set()  # own names that become something else: they end with the loop
        self.inside: dict[str, Any] = {}
        names -= self.own - _read_after(run, loop)
        self.before = run.names
        self.names = [name for name in run.names if name in names]
        self.templates = [self._ready(run.names[name]) for name in self.names]
        self.start = [part for value in self.templates for part in _flatten(run, value)]

    def _ready(self, value: Any) -> Any:
        """Python numbers as tensors, so that the body sees what it will be given again."""
        if is_number(value):
            return self.run.tensor(value)
        if isinstance(value, (tuple, list)):
            return tuple(self._ready(item) for item in value)
        return value

    def enter(self, params: Sequence[Value]) -> None:
        """Bind the names to a region's parameters."""
        parts = iter([Expr(self.run.b, param) for param in params])
        self.run.names = dict(self.before)
        for name, template in zip(self.names, self.templates, strict=True):
            self.run.names[name] = self.inside[name] = _rebuild(template, parts)

    def leave(self) -> list[Value]:
        """What a region yields."""
        found: list[Value] = []
        for name, template in zip(self.names, self.templates, strict=True):
            if name not in self.run.names:
                self.run.fail(f"{name} is lost in the loop", hint="set it on both ways of a branch")
            try:
                value = _alike(self.run, name, template, self.run.names[name])
            except KernelError:
                if name not in self.own:
                    raise
                value = self.inside[name]
                self.lost.add(name)
            found.extend(part.value for part in _flatten(self.run, value))
        return found

    def finish(self, results: Sequence[Expr]) -> None:
        """Bind the names to what the loop gives."""
        parts = iter(results)
        self.run.names = dict(self.before)
        for name, template in zip(self.names, self.templates, strict=True):
            self.run.names[name] = _rebuild(template, parts)
        for name in self.lost:
            del self.run.names[name]


def for_loop(run: Interpreter, node: ast.For) -> None:
    """`for`: over a range that the run counts, or over what is known, one copy for each item."""
    if node.orelse:
        run.fail("for ... else is not part of the language")
    if isinstance(node.iter, ast.Call):
        function = run.value(node.iter.func)
        row = lookup(function)
        name = row.name if row is not None else None
        if function is range or name == "range":
            _counted(run, node, node.iter)
            return
        if name == "static_range":
            bounds = [run.static(argument) for argument in node.iter.args]
            _unrolled(run, node, range(*bounds))
            return
    items = run.value(node.iter)
    if isinstance(items, (Tensor, Pointer, BlockPointer)) or not isinstance(items, Iterable):
        run.fail(f"for over {run.said(items)}, expected a range or a tuple", node=node.iter)
    _unrolled(run, node, items)


def _unrolled(run: Interpreter, node: ast.For, items: Iterable[Any]) -> None:
    for item in items:
        run.assign(node.target, item)
        run.block(node.body)
        if run.returned:
            return


def _bounds(run: Interpreter, call: ast.Call) -> list[Any]:
    values = [run.value(argument) for argument in call.args]
    named = {k.arg: run.value(k.value) for k in call.keywords if k.arg in ("arg1", "arg2", "step")}
    if "step" in named and len(values) == 2:
        values.append(named["step"])
    if not 1 <= len(values) <= 3:
        run.fail(f"range of {len(values)} arguments, expected 1 to 3", node=call)
    if len(values) == 1:
        values.insert(0, 0)
    return values if len(values) == 3 else [*values, 1]


def _counted(run: Interpreter, node: ast.For, call: ast.Call) -> None:
    """A loop over a range: `For` counts upwards in i64, the name has the bounds' type."""
    if not isinstance(node.target, ast.Name):
        run.fail("the target of a range is a tuple, expected a name", node=node.target)
    bounds = _bounds(run, call)
    kinds = [run.tensor(value, "a bound of range").type for value in bounds]
    wanted = kinds[0]
    for kind in kinds[1:]:
        wanted = common_type(wanted, kind)
    b = run.b
    lower, upper, step = (run.integer(value) for value in bounds)
    down = isinstance(bounds[2], int) and bounds[2] < 0
    if isinstance(bounds[2], int) and bounds[2] == 0:
        run.fail("range with step 0", node=call)
    if down:
        count = b.max((lower - upper + (-bounds[2] - 1)) // -bounds[2], 0)
        begin, end, stride = b.constant(0), count, b.constant(1)
    else:
        begin, end, stride = lower, upper, step
    carried = _Carried(run, node, frozenset((node.target.id,)))
    params = [Value(I64), *[Value(part.type) for part in carried.start]]
    block = b.open_block()
    carried.enter(params[1:])
    turn = Expr(b, params[0])
    index = lower + turn * step if down else turn
    run.names[node.target.id] = Tensor(b.cast(index, wanted.dtype))
    run.block(node.body)
    yields = carried.leave()
    b.close_block()
    operands = [begin, end, stride, *carried.start]
    region = block.region(params, yields)
    carried.finish(b.emit(For(), *[x.value for x in operands], regions=[region]))
    turns = (end - begin + (stride - 1)) // stride
    last = lower - (turns - 1) * -bounds[2] if down else lower + (turns - 1) * step
    run.names[node.target.id] = Tensor(b.cast(last, wanted.dtype))


def while_loop(run: Interpreter, node: ast.While) -> None:
    """`while`: a condition that the run decides."""
    if node.orelse:
        run.fail("while ... else is not part of the language")
    b = run.b
    carried = _Carried(run, node)
    regions = []
    for part in ("condition", "body"):
        params = [Value(x.type) for x in carried.start]
        block = b.open_block()
        carried.enter(params)
        if part == "condition":
            test = run.value(node.test)
            if isinstance(test, Tensor) and test.shape:
                run.fail(f"the condition is {test}, expected one number", node=node.test)
            yields = [run.truth(test).expr.value]
            assert yields[0].type == BOOL
        else:
            run.block(node.body)
            yields = carried.leave()
        b.close_block()
        regions.append(block.region(params, yields))
    results = b.emit(While(), *[x.value for x in carried.start], regions=regions)
    carried.finish(results)


# Indexing


def index_block(run: Interpreter, owner: Tensor | Pointer, where: ast.expr) -> Any:
    """`x[:, None]`: axes of extent 1 come in, nothing else."""
    parts = where.elts if isinstance(where, ast.Tuple) else [where]
    shape: list[int] = []
    given = list(owner.shape)
    for part in parts:
        if isinstance(part, ast.Slice) and (part.lower, part.upper, part.step) == (None,) * 3:
            if not owner.shape:
                continue  # a number has no axes: x[:, None] gives it one
            if not given:
                run.fail(f"more axes than {owner} has", node=where)
            shape.append(given.pop(0))
        elif not isinstance(part, ast.Slice) and run.value(part) is None:
            shape.append(1)
        else:
            run.fail(
                f"{owner} with an index, expected None and : only",
                hint="elements of a block have no addresses: use tl.where, a sum, or tl.gather",
                node=where,
            )
    shape += given
    if isinstance(owner, Tensor):
        return Tensor(_reshaped(run, owner.expr, shape))
    return owner.moved(_reshaped(run, owner.offsets, shape))


def _reshaped(run: Interpreter, x: Expr, shape: Sequence[int]) -> Expr:
    if not x.shape:
        return run.b.broadcast(x, shape) if shape else x
    return run.b.reshape(x, shape) if shape else x
