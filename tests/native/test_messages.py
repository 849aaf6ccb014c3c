"""Messages: what is sent is received, and an end in the middle is an end."""

import os
from collections.abc import Iterator
from threading import Thread

import pytest

from luban.native.messages import receive, send


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    ends = list(os.pipe())
    yield ends
    for end in ends:
        if end >= 0:
            os.close(end)


def close(pipe: list[int], end: int) -> None:
    os.close(pipe[end])
    pipe[end] = -1


@pytest.mark.parametrize("payload", [b"", b"code", bytes(1 << 20)])
def test_what_is_sent_is_received(pipe: list[int], payload: bytes) -> None:
    sender = Thread(target=send, args=(pipe[1], {"number": 7, "text": "ä"}, payload))
    sender.start()  # a large message does not fit into a pipe
    assert receive(pipe[0]) == ({"number": 7, "text": "ä"}, payload)
    sender.join()


def test_the_end_is_none_also_in_the_middle_of_a_message(pipe: list[int]) -> None:
    send(pipe[1], {"number": 1}, b"whole")
    os.write(pipe[1], b"\x05\0\0")
    close(pipe, 1)
    assert receive(pipe[0]) == ({"number": 1}, b"whole")
    assert receive(pipe[0]) is None


def test_nobody_to_read_is_an_error(pipe: list[int]) -> None:
    close(pipe, 0)
    with pytest.raises(BrokenPipeError):
        send(pipe[1], {})
