"""Element types."""

import ml_dtypes
import numpy as np
import pytest

from luban.core.dtypes import DTYPES, dtype, from_numpy
from luban.core.errors import DTypeError


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_and_back(name: str) -> None:
    element = dtype(name)
    assert from_numpy(element.numpy) is element
    assert str(element) == name
    assert element.size_bytes == max(element.bits // 8, 1) or element.kind == "string"


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("bool", False, True),
        ("i8", -128, 127),
        ("i4", -8, 7),
        ("i2", -2, 1),
        ("u4", 0, 15),
        ("u64", 0, 2**64 - 1),
        ("i64", -(2**63), 2**63 - 1),
        ("f32", -np.inf, np.inf),
        ("bf16", -np.inf, np.inf),
        ("f8e5m2", -np.inf, np.inf),
        ("f8e4m3fn", -448.0, 448.0),
        ("f8e4m3fnuz", -240.0, 240.0),
        ("f4e2m1", -6.0, 6.0),
    ],
)
def test_ranges(name: str, lowest: float, highest: float) -> None:
    assert (dtype(name).lowest, dtype(name).highest) == (lowest, highest)


def test_kinds() -> None:
    assert [d for d in DTYPES if DTYPES[d].is_numeric] == [
        d for d in DTYPES if DTYPES[d].kind in ("int", "uint", "float")
    ]
    assert not dtype("bool").is_integer
    assert dtype("f4e2m1").is_float


def test_every_string_dtype_is_str() -> None:
    for given in (np.dtype("U3"), np.dtype("S3"), np.dtype(object)):
        assert from_numpy(given) is dtype("str")


def test_byte_order_does_not_matter() -> None:
    assert from_numpy(np.dtype(">f4")) is dtype("f32")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(DTypeError, match="unknown dtype 'float'\nhint: one of bool, i2, "):
        dtype("float")
    with pytest.raises(DTypeError, match=r"numpy dtype datetime64\[s\] has no counterpart"):
        from_numpy(np.dtype("datetime64[s]"))


def test_narrow_types_live_one_element_a_byte() -> None:
    assert np.zeros(3, ml_dtypes.int4).nbytes == 3
    assert dtype("i4").size_bytes == 1
