"""Reading ONNX files: a checked ModelProto, its tensors as arrays without copies where possible.

External data is memory-mapped, so a model of many gigabytes opens in milliseconds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, numpy_helper

from luban.core.dtypes import DTYPES, DType
from luban.core.errors import ModelError, UnsupportedError
from luban.frontend.onnx.wire import OWN_CONTENT, without_weights

__all__ = ["ELEMENT_TYPES", "Source", "element_type", "load_model"]

ELEMENT_TYPES: dict[int, DType] = {
    TensorProto.BOOL: DTYPES["bool"],
    TensorProto.INT2: DTYPES["i2"],
    TensorProto.INT4: DTYPES["i4"],
    TensorProto.INT8: DTYPES["i8"],
    TensorProto.INT16: DTYPES["i16"],
    TensorProto.INT32: DTYPES["i32"],
    TensorProto.INT64: DTYPES["i64"],
    TensorProto.UINT2: DTYPES["u2"],
    TensorProto.UINT4: DTYPES["u4"],
    TensorProto.UINT8: DTYPES["u8"],
    TensorProto.UINT16: DTYPES["u16"],
    TensorProto.UINT32: DTYPES["u32"],
    TensorProto.UINT64: DTYPES["u64"],
    TensorProto.FLOAT4E2M1: DTYPES["f4e2m1"],
    TensorProto.FLOAT6E2M3: DTYPES["f6e2m3"],
    TensorProto.FLOAT6E3M2: DTYPES["f6e3m2"],
    TensorProto.FLOAT8E4M3FN: DTYPES["f8e4m3fn"],
    TensorProto.FLOAT8E4M3FNUZ: DTYPES["f8e4m3fnuz"],
    TensorProto.FLOAT8E5M2: DTYPES["f8e5m2"],
    TensorProto.FLOAT8E5M2FNUZ: DTYPES["f8e5m2fnuz"],
    TensorProto.FLOAT8E8M0: DTYPES["f8e8m0"],
    TensorProto.FLOAT16: DTYPES["f16"],
    TensorProto.BFLOAT16: DTYPES["bf16"],
    TensorProto.FLOAT: DTYPES["f32"],
    TensorProto.DOUBLE: DTYPES["f64"],
    TensorProto.COMPLEX64: DTYPES["c64"],
    TensorProto.COMPLEX128: DTYPES["c128"],
    TensorProto.STRING: DTYPES["str"],
}
_MAPPED_BYTES = 1 << 20
_LARGEST_FILE_BYTES = (1 << 31) - (1 << 24)  # protobuf ends at 2 GiB; the graph needs some
_PACKED_BITS = {"i2": 2, "u2": 2, "i4": 4, "u4": 4, "f4e2m1": 4, "f6e2m3": 6, "f6e3m2": 6}


def element_type(code: int) -> DType:
    """The dtype of an ONNX element type code. Raises UnsupportedError for an unknown one.

    >>> element_type(TensorProto.BFLOAT16)
    bf16
    """
    found = ELEMENT_TYPES.get(code)
    if found is None:
        raise UnsupportedError(
            f"ONNX element type {code} is unknown",
            hint="known: " + ", ".join(f"{c} = {d}" for c, d in ELEMENT_TYPES.items()),
        )
    return found


@dataclass(slots=True)
class Source:
    """A model and where its external data lies. `name` is what errors show."""

    model: onnx.ModelProto
    name: str
    folder: Path | None
    real_folder: Path | None = None
    content: np.ndarray[Any, Any] | None = None  # the model's own bytes
    path: Path | None = None  # of the file that `content` is a map of
    _maps: dict[Path, np.ndarray[Any, Any]] = field(default_factory=dict)

    @property
    def files(self) -> tuple[Path, ...]:
        """The external data files that were read from so far."""
        return tuple(self._maps)

    def array(self, tensor: TensorProto, what: str = "") -> np.ndarray[Any, Any]:
        """The tensor as an array: a view of the file if it is external, strings as `object`.

        Raises ModelError if its data is missing, truncated or outside the model's folder.
        """
        label = what or f"tensor {tensor.name!r}"
        element = element_type(tensor.data_type)
        shape = tuple(tensor.dims)
        if any(size < 0 for size in shape):
            raise ModelError(f"{self.name}: {label} has the shape {list(shape)}")
        if tensor.data_location == TensorProto.EXTERNAL:
            return _decoded(self._external_bytes(tensor, label), element, shape, self.name, label)
        if element.kind != "string" and tensor.HasField("raw_data"):
            raw = np.frombuffer(tensor.raw_data, np.uint8)
            return _decoded(raw, element, shape, self.name, label)
        try:
            array: np.ndarray[Any, Any] = numpy_helper.to_array(tensor)
        except (ValueError, TypeError) as error:
            raise ModelError(f"{self.name}: {label} cannot be read: {error}") from error
        return _strings(array) if element.kind == "string" else array.astype(element.numpy)

    def whole(self) -> onnx.ModelProto:
        """The model with every tensor's bytes inside it, as another program can read it.

        Raises ModelError if a tensor's data cannot be read or the model is too large for one file.
        """
        copy = onnx.ModelProto()
        copy.CopyFrom(self.model)
        total = 0
        for tensor in _external_tensors(copy.graph):
            content = self._external_bytes(tensor, f"tensor {tensor.name!r}")
            total += len(content)
            if total > _LARGEST_FILE_BYTES:
                raise ModelError(
                    f"{self.name}: its weights are more than {_LARGEST_FILE_BYTES >> 20} MiB, "
                    "the most that fits into one ONNX file without external data",
                    hint="check a part of the model, or check Luban itself, which maps weights",
                )
            tensor.raw_data = content.tobytes()
            tensor.ClearField("external_data")
            tensor.data_location = TensorProto.DEFAULT
        return copy

    def dense(self, sparse: onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
        """A sparse tensor with its zeros. Raises ModelError for places outside its shape."""
        values, places = self.array(sparse.values), self.array(sparse.indices)
        shape = tuple(sparse.dims)
        result = np.zeros(shape, values.dtype)
        try:
            if places.ndim == 1:
                result.reshape(-1)[places] = values
            else:
                result[tuple(places.T)] = values
        except IndexError as error:
            raise ModelError(
                f"{self.name}: sparse tensor {sparse.values.name!r}{list(shape)}: {error}"
            ) from error
        return result

    def _external_bytes(self, tensor: TensorProto, label: str) -> np.ndarray[Any, Any]:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        name, whole = self._external_file(entries.get("location", ""), label)
        try:
            offset = int(entries.get("offset", 0))
            length = int(entries.get("length", len(whole) - offset))
        except ValueError as error:
            raise ModelError(
                f"{self.name}: {label} has an external offset or length that is no number: {error}"
            ) from error
        if offset < 0 or length < 0 or offset + length > len(whole):
            raise ModelError(
                f"{self.name}: {label} needs bytes {offset} to {offset + length} of {name}, "
                f"which has {len(whole)}",
                hint="the external data file is truncated or belongs to another model",
            )
        return whole[offset : offset + length]

    def _external_file(self, location: str, label: str) -> tuple[str, np.ndarray[Any, Any]]:
        """The name and the bytes of an external file, or of the model's own."""
        if location == OWN_CONTENT and self.content is not None:
            if self.path is not None:
                self._maps[self.path] = self.content
            return self.name, self.content
        path = self._external_path(location, label)
        if path not in self._maps:
            size = path.stat().st_size
            self._maps[path] = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
        return path.name, self._maps[path]

    def _external_path(self, location: str, label: str) -> Path:
        if self.folder is None:
            raise ModelError(
                f"{self.name}: {label} lies in the external file {location!r}, "
                "but the model was given as bytes, without a folder",
                hint="give the path of the model file, or a folder",
            )
        parts = Path(location).parts
        if not location or Path(location).is_absolute() or ".." in parts:
            raise ModelError(
                f"{self.name}: {label} names the external file {location!r}, "
                "expected a path inside the model's folder",
                hint="a model must not read other files of this machine",
            )
        path = self.folder / location
        if not path.is_file():
            raise ModelError(
                f"{self.name}: {label} needs the external file {path}, which does not exist",
                hint="download the data file next to the model",
            )
        # A link may lead out only to where the model itself really lies: download caches do that.
        real, allowed = path.resolve(), [self.folder.resolve(), self.real_folder or self.folder]
        if not any(real.is_relative_to(folder) for folder in allowed):
            raise ModelError(
                f"{self.name}: {label}: the external file {location!r} is a link to {real}, "
                "outside the model's folder",
            )
        return path


def _decoded(
    raw: np.ndarray[Any, Any], element: DType, shape: tuple[int, ...], source: str, label: str
) -> np.ndarray[Any, Any]:
    count = math.prod(shape)
    bits = _PACKED_BITS.get(element.name)
    expected = count * element.size_bytes if bits is None else (count * bits + 7) // 8
    if len(raw) != expected:
        raise ModelError(
            f"{source}: {label} is {element}{list(shape)} and needs {expected} bytes, "
            f"but has {len(raw)}",
            hint="the file is truncated or damaged",
        )
    if bits is None:
        # Files align nothing. Who hands the array to a kernel copies it if it has to.
        return raw.view(element.numpy).reshape(shape)
    return _unpacked(raw, bits, count, element).reshape(shape)


def _unpacked(
    raw: np.ndarray[Any, Any], bits: int, count: int, element: DType
) -> np.ndarray[Any, Any]:
    """Sub-byte elements, lowest bits first, one a byte."""
    codes: np.ndarray[Any, Any]
    if bits == 6:  # four elements in three bytes
        digits = np.unpackbits(raw, bitorder="little")[: count * bits].reshape(count, bits)
        codes = (digits << np.arange(bits, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
    else:
        fields = [(raw >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
        codes = np.stack(fields, axis=-1).reshape(-1)[:count]
    if element.kind == "float":
        return codes.astype(np.uint8).view(element.numpy)
    if element.kind == "int":
        codes = codes.astype(np.int16)
        codes = np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes)
    return codes.astype(np.int8 if element.kind == "int" else np.uint8).astype(element.numpy)


def _strings(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    texts = [t.decode("utf-8", "replace") if isinstance(t, bytes) else str(t) for t in array.flat]
    result = np.empty(len(texts), object)
    result[:] = texts
    return result.reshape(array.shape)


def _external_tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Tensors whose bytes lie elsewhere, those of nodes and of their sub-graphs too."""
    found = [*graph.initializer]
    for node in graph.node:
        for attribute in node.attribute:
            found += [attribute.t, *attribute.tensors]
            for inner in (attribute.g, *attribute.graphs):
                yield from _external_tensors(inner)
    yield from (t for t in found if t.data_location == TensorProto.EXTERNAL)


def load_model(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    name: str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Source:
    """The model with everything in place to read its tensors.

    `folder` is where external data lies; by default the model file's own. Raises ModelError for a
    file that is missing, truncated or not an ONNX model.
    """
    if isinstance(model, onnx.ModelProto):
        found = name or "model.onnx"
        _check_is_model(model, found)
        return Source(model, found, Path(folder) if folder is not None else None)
    if isinstance(model, bytes | bytearray | memoryview):
        found, path, content = name or "model.onnx", None, np.frombuffer(model, np.uint8)
    elif not isinstance(model, str | os.PathLike):
        raise ModelError(
            f"the model is a {type(model).__name__}, "
            "expected a path, the bytes of an ONNX file or a ModelProto"
        )
    else:
        path = Path(model)
        found, content = name or path.name, _read(path)
    shown = str(path) if path else name or "the bytes"
    proto = _parsed(content.data, shown)
    _check_is_model(proto, shown)
    if path is None:
        return Source(proto, found, Path(folder) if folder is not None else None, content=content)
    place = Path(folder) if folder is not None else path.parent
    is_map = isinstance(content, np.memmap)
    return Source(proto, found, place, path.resolve().parent, content, path if is_map else None)


def _read(path: Path) -> np.ndarray[Any, Any]:
    """The bytes of a file; a large one is mapped."""
    try:
        if path.stat().st_size < _MAPPED_BYTES or not path.is_file():
            return np.frombuffer(path.read_bytes(), np.uint8)
        return np.memmap(path, np.uint8, "r")
    except FileNotFoundError:
        raise ModelError(f"there is no file {path}", hint="check the path of the model") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{str(path)!r} cannot be read: {error}") from error


def _parsed(content: memoryview, what: str) -> onnx.ModelProto:
    """The model, its large tensors left in `content`."""
    if not content:
        raise ModelError(f"{what} is empty, expected an ONNX model")
    proto = onnx.ModelProto()
    small = without_weights(content)
    try:
        proto.ParseFromString(bytes(content) if small is None else small)
    except DecodeError as error:
        raise ModelError(
            f"{what} is not an ONNX model, or is truncated ({len(content)} bytes)",
            hint="download or export it again",
        ) from error
    return proto


def _check_is_model(proto: onnx.ModelProto, what: str) -> None:
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ModelError(f"{what} holds no graph", hint="is it an ONNX model, and complete?")
    if proto.ir_version < 1:
        raise ModelError(f"{what} states no IR version", hint="is it an ONNX model, and complete?")
    if not proto.opset_import and proto.ir_version >= 3:
        raise ModelError(f"{what} imports no operator set", hint="add opset_import")
