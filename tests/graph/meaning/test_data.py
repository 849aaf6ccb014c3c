"""Constants, indices, sizes, random bits, non-zeros and host calls."""

import math
import pkgutil
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from luban.core.dims import symbol
from luban.core.dtypes import DTYPES
from luban.core.errors import InternalError
from luban.core.types import OptionalType, SequenceType, tensor
from luban.graph import build
from luban.graph import host as graph_host
from luban.graph.host import HOST, host, host_function
from luban.graph.meaning import MEANING
from luban.graph.ops import PRIMITIVES
from luban.graph.ops.data import HostCall, Iota, Nonzero, RandomBits
from luban.ir.node import Node, Parameter, node, results_of
from tests.graph.calls import apply, call


def test_every_primitive_has_a_meaning() -> None:
    assert set(MEANING) == set(PRIMITIVES.values()) - {Parameter}


def test_constants_keep_their_dtype_or_become_float64() -> None:
    for element in (np.float32, ml_dtypes.float8_e4m3fn, np.int8, np.bool_):
        array = np.array([1, 0], element)
        assert call(lambda a=array: build.constant(a)).dtype == element
        wide = call(lambda a=array: build.constant(a), precision="float64")
        assert wide.dtype == (np.float64 if array.dtype.name.startswith("float") else element)


def test_iota() -> None:
    result = call(lambda: node(Iota(DTYPES["bf16"], (2, 3), 1)))
    assert result.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(result.astype(int), [[0, 1, 2], [0, 1, 2]])


def test_dimension_size_of_an_expression() -> None:
    n = symbol("n")
    types = [tensor("f32", n)]
    assert call(lambda _: build.dimension(n * n // 2), np.zeros(5, np.float32), types=types) == 12


def philox_by_definition(key: tuple[int, int], counter: tuple[int, int, int, int]) -> list[int]:
    """Salmon et al. 2011, figure 2, on Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [
            (second >> 32) ^ c[1] ^ k[0],
            second & 0xFFFFFFFF,
            (first >> 32) ^ c[3] ^ k[1],
            first & 0xFFFFFFFF,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_random_bits_are_philox() -> None:
    # The known answers published with the generator.
    assert philox_by_definition((0, 0), (0, 0, 0, 0))[0] == 0x6627E8D5
    ones = 0xFFFFFFFF
    assert philox_by_definition((ones, ones), (ones,) * 4)[0] == 0x408F276D
    key = 0x0123456789ABCDEF
    result = apply(RandomBits((2, 3)), np.array([key], np.uint64))
    halves = (key & 0xFFFFFFFF, key >> 32)
    expected = [philox_by_definition(halves, (i, 0, 0, 0))[0] for i in range(6)]
    assert result.dtype == np.uint32
    assert result.ravel().tolist() == expected


def test_random_bits_look_uniform() -> None:
    bits = apply(RandomBits((1 << 16,)), np.array([7], np.uint64))
    mean = bits.astype(np.float64).mean() / 2**32
    assert abs(mean - 0.5) < 4 * math.sqrt(1 / 12 / len(bits))
    assert len(np.unique(bits)) > len(bits) - 10


@pytest.mark.parametrize(
    "x", [np.array([[0, 1], [1, 1]]), np.zeros((2, 2)), np.array(1), np.array(0)]
)
def test_nonzero_binds_its_count(x: Any) -> None:
    count = symbol("count")

    def function(a: Node) -> tuple[Node, Node]:
        return node(Nonzero(count), a), build.dimension(count)

    result, size = call(function, x.astype(bool))
    expected = np.array(np.nonzero(np.atleast_1d(x))) if x.ndim else np.zeros((0, int(x)))
    np.testing.assert_array_equal(result, expected)
    assert size == expected.shape[1]


@pytest.fixture
def joined() -> Any:
    @host("test_join")
    def join(options: dict[str, Any], values: list[Any]) -> tuple[Any, ...]:
        text = options["separator"].join(values[0].tolist())
        return np.array(text, object), [np.array(len(text))], None

    yield join
    del HOST["test_join"]


def test_a_host_call_gives_what_its_function_gives(joined: Any) -> None:
    types = (tensor("str"), SequenceType(tensor("i64")), OptionalType(tensor("f32")))
    op = HostCall("test_join", (("separator", "-"),), types)
    x = build.constant(np.array(["a", "b"], object))
    text, lengths, nothing = call(lambda: results_of(node(op, x)))
    assert text.item() == "a-b"
    assert [int(v) for v in lengths] == [3]
    assert nothing is None


def test_families_are_found_without_the_front_end() -> None:
    families = [m.name for m in pkgutil.iter_modules(graph_host.__path__)]
    assert families
    program = f"""
import sys
from luban.graph.host import HOST, host_function
assert not HOST
try:
    host_function("absent")
except Exception:
    pass
assert HOST and all("luban.graph.host." + f in sys.modules for f in {families})
assert "luban.frontend" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_host_names_are_unique_and_known(joined: Any) -> None:
    with pytest.raises(InternalError, match="two host functions are called 'test_join'"):
        host("test_join")(joined)
    with pytest.raises(
        InternalError, match="no host function 'absent': add it to a file in graph/host/"
    ):
        host_function("absent")
