"""Random tile programs: compiled code leaves the memory as the evaluator does, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from luban.codegen import emit
from luban.codegen.vector_math import FUNCTIONS
from luban.core.dtypes import DTYPES
from luban.native.compile import compile_object
from luban.native.target import named_target
from luban.tile import (
    I64,
    Binary,
    Constant,
    Function,
    Operation,
    Param,
    Region,
    Store,
    TileOp,
    Unary,
    Value,
    pointer_type,
)
from tests.codegen.harness import check, interesting
from tests.tile.programs import BUFFER_ELEMENTS, NAMES, functions

INEXACT = set(FUNCTIONS) - {"sqrt", "rem"}


def exact_op(op: TileOp) -> TileOp:
    """The op, or one with exact results in place of an elementary function."""
    if isinstance(op, Unary) and op.kind in INEXACT:
        return Unary("abs")
    if isinstance(op, Binary) and op.kind in INEXACT:
        return Binary("max")
    return op


def exact_region(region: Region) -> Region:
    return replace(region, body=tuple(exact(operation) for operation in region.body))


def exact(operation: Operation) -> Operation:
    regions = tuple(exact_region(region) for region in operation.regions)
    return replace(operation, op=exact_op(operation.op), regions=regions)


def storing_all(function: Function) -> Function:
    """The exact form of the function, with a buffer of its own for every value of its top level."""
    params, body = list(function.params), list(exact_region(function.body).body)
    zero = Value(I64)
    stores = []
    for operation in body:
        for value in operation.results:
            pointer = Value(pointer_type(value.type.dtype), f"out{len(params)}")
            params.append(Param(pointer))
            shape = value.type.shape
            strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
            stores.append(Operation(Store(shape, strides), (pointer, zero, value)))
    body += [Operation(Constant(0, I64.dtype), (), (zero,)), *stores]
    region = Region(tuple(param.value for param in params), tuple(body))
    return replace(function, params=tuple(params), body=region)


def check_random(function: Function, count: int, seed: int) -> None:
    program = storing_all(function)
    buffers = [interesting(name, BUFFER_ELEMENTS, seed) for name in NAMES]
    outputs = [
        np.zeros(BUFFER_ELEMENTS, param.type.pointee.numpy)
        for param in program.params[len(NAMES) + 1 :]
    ]
    check(program, [*buffers, count, *outputs], num_programs=2)


@given(functions(), st.integers(0, 9), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_programs(function: Function, count: int, seed: int) -> None:
    check_random(function, count, seed)


@given(functions())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_programs_compile_for_neon(function: Function) -> None:
    assert compile_object(emit(function, named_target("neon")), named_target("neon"))


@pytest.mark.slow
@given(functions(), st.integers(0, 9), st.integers(0, 2**32 - 1))
@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_many_random_programs(function: Function, count: int, seed: int) -> None:
    check_random(function, count, seed)


def test_every_stored_type_takes_part() -> None:
    assert set(NAMES) <= set(DTYPES)
    assert len(NAMES) == len({DTYPES[name].numpy for name in NAMES})
    assert np.dtype(np.bool_) in {DTYPES[name].numpy for name in NAMES}
