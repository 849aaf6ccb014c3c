from __future__ import annotations

import pytest

from luban.core.dtypes import dtype
from luban.core.errors import DTypeError, ShapeError
from luban.tile.types import Ptr, TileType, broadcast_shapes, pointer_type, tile_type


def test_types_print_and_compare_by_value() -> None:
    assert str(tile_type("f32", 6, 64)) == "tile<6x64xf32>"
    assert str(tile_type("i64")) == "i64"
    assert str(pointer_type("bf16")) == "ptr<bf16>"
    assert tile_type("f32", 4) == tile_type("f32", 4)
    assert tile_type("f32", 4) != tile_type("i32", 4)
    assert len({tile_type("f32"), tile_type("f32"), pointer_type("f32")}) == 2


def test_properties() -> None:
    tile = tile_type("u8", 3, 5)
    assert tile.num_elements == 15
    assert not tile.is_scalar
    assert tile.with_shape((15,)) == tile_type("u8", 15)
    assert tile.with_dtype(dtype("f32")) == tile_type("f32", 3, 5)
    assert tile_type("bool").is_scalar
    assert pointer_type("f32").is_pointer
    assert not pointer_type("f32").is_scalar


@pytest.mark.parametrize("name", ["c64", "str"])
def test_refuses_elements_that_no_register_holds(name: str) -> None:
    with pytest.raises(DTypeError, match=f"a tile of {name}, expected bool, integers or floats"):
        tile_type(name, 4)
    with pytest.raises(DTypeError, match=f"a tile of {name}"):
        pointer_type(name)


@pytest.mark.parametrize("shape", [(0,), (4, -1), (1 << 21,), (1 << 11, 1 << 10)])
def test_refuses_absurd_extents(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="expected extents of at least 1 and at most 1048576"):
        TileType(dtype("f32"), shape)


def test_refuses_tiles_of_pointers() -> None:
    with pytest.raises(ShapeError, match=r"a tile of pointers ptr<f32> with shape \(4,\)"):
        TileType(Ptr(dtype("f32")), (4,))


def test_numbers_and_addresses_are_not_confused() -> None:
    with pytest.raises(DTypeError, match="ptr<f32> is an address, expected numbers"):
        _ = pointer_type("f32").dtype
    with pytest.raises(DTypeError, match="f32 is not an address"):
        _ = tile_type("f32").pointee


@pytest.mark.parametrize(
    ("shapes", "wanted"),
    [
        ([(6, 1), (16,)], (6, 16)),
        ([(), (3,)], (3,)),
        ([(2, 1, 4), (5, 1)], (2, 5, 4)),
        ([(3,), (4,)], None),
        ([], ()),
    ],
)
def test_broadcast_shapes(shapes: list[tuple[int, ...]], wanted: tuple[int, ...] | None) -> None:
    assert broadcast_shapes(*shapes) == wanted
