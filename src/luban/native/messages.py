"""What the compile process and its parent say to each other: a small dict and some bytes at a time.

On the wire: two little-endian lengths, the dict as JSON, the bytes.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

__all__ = ["Message", "packed", "receive", "send"]

Message = tuple[dict[str, Any], bytes]

_LENGTHS = struct.Struct("<IQ")


def packed(fields: dict[str, Any], payload: bytes = b"") -> bytes:
    """One message as it goes over the wire."""
    head = json.dumps(fields).encode()
    return _LENGTHS.pack(len(head), len(payload)) + head + payload


def send(descriptor: int, fields: dict[str, Any], payload: bytes = b"") -> None:
    """Write one message. Raises BrokenPipeError if nobody will read it."""
    rest = memoryview(packed(fields, payload))
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def receive(descriptor: int) -> Message | None:
    """The next message; None if the other side is gone, also in the middle of one."""
    lengths = _exactly(descriptor, _LENGTHS.size)
    if lengths is None:
        return None
    head_bytes, payload_bytes = _LENGTHS.unpack(lengths)
    head, payload = _exactly(descriptor, head_bytes), _exactly(descriptor, payload_bytes)
    return None if head is None or payload is None else (json.loads(head), payload)


def _exactly(descriptor: int, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        part = os.read(descriptor, min(size - len(found), 1 << 20))
        if not part:
            return None
        found += part
    return bytes(found)
