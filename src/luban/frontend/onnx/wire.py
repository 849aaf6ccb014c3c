"""Takes large tensors out of a serialized model before protobuf parses it.

Protobuf copies every byte it parses, and hands raw data out as yet another copy. So the fields that
hold it are found first, in protobuf's wire format, and become references to the file's own bytes:
the weights of a model are then views of the mapped file, and what is parsed is small.
https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx import StringStringEntryProto, TensorProto

__all__ = ["OWN_CONTENT", "without_weights"]

OWN_CONTENT = "the model's own bytes"
"""The location, in external data, of bytes of the very file that the tensor is in."""

_LARGE_BYTES = 1024
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# Message -> field number -> the message in it. Only these are looked into.
_NESTED: dict[str, dict[int, str]] = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph"},
    "tensor": {},
}
_RAW_DATA = TensorProto.RAW_DATA_FIELD_NUMBER
_EXTERNAL_DATA = TensorProto.EXTERNAL_DATA_FIELD_NUMBER
_DATA_LOCATION = TensorProto.DATA_LOCATION_FIELD_NUMBER


class _Malformed(Exception):
    """The bytes are not in the wire format: protobuf will say so better."""


def without_weights(content: memoryview) -> bytes | None:
    """A serialized ModelProto without large raw data, which external data refers to instead.

    None if the bytes are no model; what is wrong with them is for the parser to say.
    """
    try:
        return b"".join(_rewritten(content, 0, len(content), "model"))
    except _Malformed:
        return None


def _rewritten(content: memoryview, start: int, end: int, kind: str) -> Iterator[bytes]:
    """The message in content[start:end] in pieces; those that do not change are taken whole."""
    nested = _NESTED[kind]
    kept, place = start, start
    reference = b""  # goes last: a later field of the same number would win over it
    while place < end:
        tag, body = _varint(content, place, end)
        number, wire_type = tag >> 3, tag & 7
        if wire_type != _BYTES:
            place = _after_number(content, body, end, wire_type)
            continue
        length, first = _varint(content, body, end)
        after = first + length
        if after > end:
            raise _Malformed
        if length >= _LARGE_BYTES and number in nested:
            inner = b"".join(_rewritten(content, first, after, nested[number]))
            yield bytes(content[kept:place]) + _field(number, inner)
            kept = after
        elif length >= _LARGE_BYTES and kind == "tensor" and number == _RAW_DATA:
            yield bytes(content[kept:place])
            reference, kept = _reference(first, length), after
        place = after
    yield bytes(content[kept:end]) + reference


def _varint(content: memoryview, place: int, end: int) -> tuple[int, int]:
    """The number that begins at a place, and where it ends."""
    value = shift = 0
    while place < end and shift < 64:
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise _Malformed


def _after_number(content: memoryview, place: int, end: int, wire_type: int) -> int:
    if wire_type == _VARINT:
        return _varint(content, place, end)[1]
    width = {_FIXED64: 8, _FIXED32: 4}.get(wire_type)
    if width is None or place + width > end:
        raise _Malformed
    return place + width


def _encoded(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _field(number: int, content: bytes) -> bytes:
    return _encoded(number << 3 | _BYTES) + _encoded(len(content)) + content


def _reference(offset: int, length: int) -> bytes:
    """The fields of a TensorProto that say where its raw data is."""
    entries = {"location": OWN_CONTENT, "offset": str(offset), "length": str(length)}
    fields = [
        _field(_EXTERNAL_DATA, StringStringEntryProto(key=k, value=v).SerializeToString())
        for k, v in entries.items()
    ]
    return b"".join(fields) + _encoded(_DATA_LOCATION << 3) + _encoded(TensorProto.EXTERNAL)
