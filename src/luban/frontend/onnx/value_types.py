"""ONNX value types as our types: names of sizes become symbols, unknown sizes fresh ones."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral

import onnx

from luban.core import dims
from luban.core.dims import UNBOUNDED, Dim, DimLike, symbol
from luban.core.errors import InputError, ModelError, ShapeError
from luban.core.types import OptionalType, SequenceType, TensorType, TupleType, Type
from luban.frontend.onnx.load import ELEMENT_TYPES, element_type

__all__ = ["UNRANKED", "SymbolNames", "is_unranked", "type_of", "type_proto"]

UNRANKED = symbol("unranked")
"""The only size of a sequence's item type when even the number of axes is not known."""

MAX_SIZE = (1 << 47) - 1
"""More elements than this have no addresses, and products of larger sizes leave 64 bits."""

_CODES = {element: code for code, element in ELEMENT_TYPES.items()}


class SymbolNames:
    """The names of sizes that one import uses: no two different sizes get the same name."""

    def __init__(self) -> None:
        self._by_parameter: dict[str, DimLike] = {}
        self._taken: set[str] = {"min", "max", "broadcast", str(UNRANKED)}
        self.created: list[str] = []

    def reserve(self, names: Iterable[str]) -> None:
        """Keep these names for sizes that others defined."""
        self._taken.update(names)

    def fresh(self, hint: str, low: int = 0, high: int = UNBOUNDED) -> Dim:
        """A size that nothing else is known of; `hint` is the start of its name."""
        stem = _identifier(hint)
        name, count = stem, 0
        while name in self._taken:
            name, count = f"{stem}_{count}", count + 1
        self._taken.add(name)
        self.created.append(name)
        return symbol(name, low, high)

    def fix(self, parameter: str, size: DimLike) -> None:
        """Let a dim_param stand for this size."""
        self._by_parameter[parameter] = size

    def named(self, parameter: str) -> DimLike:
        """The size that a dim_param stands for, the same for each use."""
        found = self._by_parameter.get(parameter)
        if found is None:
            found = self._expression(parameter)
            if found is None:
                found = self.fresh(parameter)
            self._by_parameter[parameter] = found
        return found

    def _expression(self, text: str) -> DimLike | None:
        """The size if the text is arithmetic over dim_params met before, such as `past + 1`."""
        known = {n: d for n, d in self._by_parameter.items() if isinstance(d, Dim)}
        try:
            parsed = dims.parse(text, known)
        except ShapeError:
            return None
        used = {s.name for s in dims.symbols(parsed)}
        return parsed if used and used <= {str(d) for d in known.values()} else None


def _identifier(text: str) -> str:
    cleaned = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "size"
    return f"n{cleaned}" if cleaned[0].isdigit() or keyword.iskeyword(cleaned) else cleaned


def type_of(proto: onnx.TypeProto, name: str, names: SymbolNames) -> Type:
    """The type that the proto states for the value `name`.

    Raises InputError for a tensor of unknown rank, UnsupportedError for unknown element types.
    """
    kind = proto.WhichOneof("value")
    if kind == "sequence_type":
        return SequenceType(_item_type(proto.sequence_type.elem_type, name, names))
    if kind == "optional_type":
        return OptionalType(_item_type(proto.optional_type.elem_type, name, names))
    if kind == "map_type":  # a dictionary has no type of its own: that of its values stands for it
        return SequenceType(_item_type(proto.map_type.value_type, name, names))
    if kind != "tensor_type":
        raise InputError(
            f"input {name!r} has the type {kind}, expected a tensor, sequence, optional or map"
        )
    if not proto.tensor_type.HasField("shape"):
        raise InputError(
            f"input {name!r} has no number of axes", hint=f"give one: shapes={{{name!r}: [...]}}"
        )
    return TensorType(
        element_type(proto.tensor_type.elem_type),
        tuple(
            _size(d, f"{name}_{axis}", names) for axis, d in enumerate(proto.tensor_type.shape.dim)
        ),
    )


def _item_type(proto: onnx.TypeProto, name: str, names: SymbolNames) -> Type:
    if proto.WhichOneof("value") == "tensor_type" and not proto.tensor_type.HasField("shape"):
        return TensorType(element_type(proto.tensor_type.elem_type), (UNRANKED,))
    return type_of(proto, name, names)


def _size(dim: onnx.TensorShapeProto.Dimension, hint: str, names: SymbolNames) -> DimLike:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        if dim.dim_value > MAX_SIZE:
            raise ModelError(f"{hint} is {dim.dim_value}, expected at most {MAX_SIZE}")
        return dim.dim_value
    is_named = dim.dim_param.strip("?")  # some exporters write "?" for every size they do not know
    return names.named(dim.dim_param) if is_named else names.fresh(hint)


def with_sizes(name: str, type_: Type, sizes: Sequence[int | str], names: SymbolNames) -> Type:
    """The type with the sizes that the user gave: ints, or names and expressions of symbols."""
    if not isinstance(type_, TensorType):
        raise InputError(f"input {name!r} is {type_}: a shape fits tensors only")
    if type_.shape != (UNRANKED,) and len(sizes) != type_.rank:
        raise InputError(
            f"input {name!r} is {type_}: {list(sizes)} has {len(sizes)} axes, expected {type_.rank}"
        )
    for size in sizes:
        if not _can_be_size(size):
            raise InputError(
                f"input {name!r}: size {size!r} in {list(sizes)}, "
                f"expected a name or a whole number from 0 to {MAX_SIZE}"
            )
    return type_.with_shape(names.named(s) if isinstance(s, str) else int(s) for s in sizes)


def _can_be_size(given: object) -> bool:
    return isinstance(given, str) or (isinstance(given, Integral) and 0 <= int(given) <= MAX_SIZE)


def is_unranked(type_: Type) -> bool:
    """True for a tensor type of which only the dtype is known."""
    return isinstance(type_, TensorType) and type_.shape == (UNRANKED,)


def type_proto(type_: Type) -> onnx.TypeProto:
    """Our type as ONNX states it; symbolic sizes stay open."""
    proto = onnx.TypeProto()
    match type_:
        case TensorType():
            proto.tensor_type.elem_type = _CODES[type_.dtype]
            if not is_unranked(type_):
                proto.tensor_type.shape.SetInParent()
                for size in type_.shape:
                    dim = proto.tensor_type.shape.dim.add()
                    if isinstance(size, int):
                        dim.dim_value = size
        case SequenceType():
            proto.sequence_type.elem_type.CopyFrom(type_proto(type_.item))
        case OptionalType():
            proto.optional_type.elem_type.CopyFrom(type_proto(type_.item))
        case TupleType():
            raise TypeError(f"{type_} is no ONNX type")
    return proto


def renamed(type_: Type, names: SymbolNames, hint: str, keep: Mapping[str, object]) -> Type:
    """The type with every size that has a symbol outside `keep` replaced by a fresh one."""
    match type_:
        case TensorType():
            return type_.with_shape(
                size
                if all(s.name in keep for s in dims.symbols(size))
                else names.fresh(f"{hint}_{axis}")
                for axis, size in enumerate(type_.shape)
            )
        case SequenceType() | OptionalType():
            return type_
    return type_
