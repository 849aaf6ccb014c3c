"""Host steps: results in memory of their own, and errors that name the node."""

import numpy as np
import pytest

from luban.core.errors import ShapeError
from luban.core.loc import Loc
from luban.core.types import tensor
from luban.engine.host import host_call
from luban.graph import build
from luban.ir.node import located


def no_sub_graph(*_: object) -> tuple[object, ...]:
    raise AssertionError("this node has no sub-graph")


def test_results_never_share_memory_with_operands() -> None:
    x = build.parameter("x", tensor("f32", 2, 3))
    given = np.ones((2, 3), np.float32)
    (result,) = host_call(build.reshape(x, (3, 2)))([given], {}, no_sub_graph)
    assert not np.may_share_memory(result, given)
    assert result.flags.c_contiguous


def test_sizes_that_numpy_refuses_name_the_node() -> None:
    x = build.parameter("x", tensor("f32", 1))
    with located(Loc("model.onnx", "grow_it")):
        wide = build.broadcast_to(x, (1 << 40, 1 << 40))
    call = host_call(wide)
    with pytest.raises(ShapeError, match=r"cannot be computed for operands of shapes \(1,\)") as e:
        call([np.ones(1, np.float32)], {}, no_sub_graph)
    assert "at model.onnx: grow_it" in str(e.value)
