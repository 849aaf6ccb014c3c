"""The generated builtins of the fast call path, as LLVM text.

Both are C functions of CPython's calling convention. `self` is a numpy array of int64, the record,
so that Python keeps it alive and its address is one load away.
"""

from __future__ import annotations

from string import Template
from typing import Final

__all__ = ["ENTRY_POINTS", "call_text"]

ENTRY_POINTS: Final = ("call_replay", "call_arrays")

# A result besides pool_code's three: an array was not as expected, and nothing has happened.
DECLINED: Final = 3

# numpy's array object, fixed by its C ABI since 1.7 (64-bit CPython): offsets in bytes.
ARRAY_TYPE: Final = 8
ARRAY_DATA: Final = 16
ARRAY_NUM_DIMS: Final = 24
ARRAY_DIMS: Final = 32
ARRAY_DTYPE: Final = 56
ARRAY_FLAGS: Final = 64

# The record, in bytes: the table, the number of parameters, numpy's array type, the parameters.
RECORD_NUM_PARAMETERS: Final = 8
RECORD_ARRAY_TYPE: Final = 16
RECORD_PARAMETERS: Final = 24

# One parameter: dtype, rank, address of its dims, flags, number of slots, address of its slots;
# a slot is the address to write to, and the offset to add to the array's data address.
PARAMETER_BYTES: Final = 48

_TEXT = """
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLong(i64)
declare i32 @replay(ptr, ptr)
declare i32 @enter(ptr)
declare i32 @replay_entered(ptr, ptr)

; METH_NOARGS: replay the table that the record names.
define ptr @call_replay(ptr %self, ptr %unused) nounwind {
  %record_at = getelementptr i8, ptr %self, i64 $array_data
  %record = load ptr, ptr %record_at
  %table = load ptr, ptr %record
  %thread = call ptr @PyEval_SaveThread()
  %result = call i32 @replay(ptr %table, ptr null)
  call void @PyEval_RestoreThread(ptr %thread)
  %wide = sext i32 %result to i64
  %number = call ptr @PyLong_FromLong(i64 %wide)
  ret ptr %number
}

; METH_FASTCALL: check the arrays, put their data addresses into the slots, replay.
define ptr @call_arrays(ptr %self, ptr %arrays, i64 %num_arrays) nounwind {
entry:
  %record_at = getelementptr i8, ptr %self, i64 $array_data
  %record = load ptr, ptr %record_at
  %table = load ptr, ptr %record
  %num_parameters_at = getelementptr i8, ptr %record, i64 $record_num_parameters
  %num_parameters = load i64, ptr %num_parameters_at
  %type_at = getelementptr i8, ptr %record, i64 $record_array_type
  %type = load ptr, ptr %type_at
  %parameters = getelementptr i8, ptr %record, i64 $record_parameters
  %right_number = icmp eq i64 %num_arrays, %num_parameters
  br i1 %right_number, label %check, label %finish
check:
  %i = phi i64 [ 0, %entry ], [ %i_next, %dim ]
  %unchecked = icmp ult i64 %i, %num_parameters
  br i1 %unchecked, label %check_type, label %enter
check_type:
  %array_at = getelementptr ptr, ptr %arrays, i64 %i
  %array = load ptr, ptr %array_at
  %parameter_offset = mul i64 %i, $parameter_bytes
  %parameter = getelementptr i8, ptr %parameters, i64 %parameter_offset
  %array_type_at = getelementptr i8, ptr %array, i64 $array_type
  %array_type = load ptr, ptr %array_type_at
  %right_type = icmp eq ptr %array_type, %type
  br i1 %right_type, label %check_layout, label %finish
check_layout:
  %dtype = load ptr, ptr %parameter
  %array_dtype_at = getelementptr i8, ptr %array, i64 $array_dtype
  %array_dtype = load ptr, ptr %array_dtype_at
  %right_dtype = icmp eq ptr %array_dtype, %dtype
  %rank_at = getelementptr i8, ptr %parameter, i64 8
  %rank = load i64, ptr %rank_at
  %array_rank_at = getelementptr i8, ptr %array, i64 $array_num_dims
  %array_rank = load i32, ptr %array_rank_at
  %array_rank_wide = sext i32 %array_rank to i64
  %right_rank = icmp eq i64 %array_rank_wide, %rank
  %flags_at = getelementptr i8, ptr %parameter, i64 24
  %flags = load i32, ptr %flags_at
  %array_flags_at = getelementptr i8, ptr %array, i64 $array_flags
  %array_flags = load i32, ptr %array_flags_at
  %common_flags = and i32 %array_flags, %flags
  %right_flags = icmp eq i32 %common_flags, %flags
  %right_so_far = and i1 %right_dtype, %right_rank
  %right_layout = and i1 %right_so_far, %right_flags
  %dims_slot = getelementptr i8, ptr %parameter, i64 16
  %dims = load ptr, ptr %dims_slot
  %array_dims_at = getelementptr i8, ptr %array, i64 $array_dims
  %array_dims = load ptr, ptr %array_dims_at
  br i1 %right_layout, label %dim, label %finish
dim:
  %d = phi i64 [ 0, %check_layout ], [ %d_next, %check_dim ]
  %i_next = add i64 %i, 1
  %more_dims = icmp ult i64 %d, %rank
  br i1 %more_dims, label %check_dim, label %check
check_dim:
  %dim_at = getelementptr i64, ptr %dims, i64 %d
  %size = load i64, ptr %dim_at
  %array_dim_at = getelementptr i64, ptr %array_dims, i64 %d
  %array_size = load i64, ptr %array_dim_at
  %d_next = add i64 %d, 1
  %right_size = icmp eq i64 %array_size, %size
  br i1 %right_size, label %dim, label %finish
enter:
  ; Before the slots change: another thread's replay may be using them.
  %entered = call i32 @enter(ptr %table)
  %free = icmp ne i32 %entered, 0
  br i1 %free, label %fill, label %finish
fill:
  %f = phi i64 [ 0, %enter ], [ %f_next, %slot ]
  %unfilled = icmp ult i64 %f, %num_parameters
  br i1 %unfilled, label %fill_array, label %run
fill_array:
  %source_at = getelementptr ptr, ptr %arrays, i64 %f
  %source = load ptr, ptr %source_at
  %data_at = getelementptr i8, ptr %source, i64 $array_data
  %data = load i64, ptr %data_at
  %filled_offset = mul i64 %f, $parameter_bytes
  %filled = getelementptr i8, ptr %parameters, i64 %filled_offset
  %num_slots_at = getelementptr i8, ptr %filled, i64 32
  %num_slots = load i64, ptr %num_slots_at
  %slots_at = getelementptr i8, ptr %filled, i64 40
  %slots = load ptr, ptr %slots_at
  br label %slot
slot:
  %s = phi i64 [ 0, %fill_array ], [ %s_next, %fill_slot ]
  %f_next = add i64 %f, 1
  %more_slots = icmp ult i64 %s, %num_slots
  br i1 %more_slots, label %fill_slot, label %fill
fill_slot:
  %slot_at = getelementptr { ptr, i64 }, ptr %slots, i64 %s
  %destination = load ptr, ptr %slot_at
  %shift_at = getelementptr i8, ptr %slot_at, i64 8
  %shift = load i64, ptr %shift_at
  %address = add i64 %data, %shift
  store i64 %address, ptr %destination
  %s_next = add i64 %s, 1
  br label %slot
run:
  %thread = call ptr @PyEval_SaveThread()
  %result = call i32 @replay_entered(ptr %table, ptr null)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %finish
finish:
  %outcome = phi i32 [ $declined, %entry ], [ $declined, %check_type ],
    [ $declined, %check_layout ], [ $declined, %check_dim ], [ $busy, %enter ], [ %result, %run ]
  %wide = sext i32 %outcome to i64
  %number = call ptr @PyLong_FromLong(i64 %wide)
  ret ptr %number
}
"""


def call_text(busy: int) -> str:
    """The module, the same for every target; `busy` is what @call_arrays returns for a busy table.

    It imports pool_code's @replay, @enter and @replay_entered, and four functions of CPython.
    """
    return Template(_TEXT).substitute(
        array_type=ARRAY_TYPE,
        array_data=ARRAY_DATA,
        array_num_dims=ARRAY_NUM_DIMS,
        array_dims=ARRAY_DIMS,
        array_dtype=ARRAY_DTYPE,
        array_flags=ARRAY_FLAGS,
        record_num_parameters=RECORD_NUM_PARAMETERS,
        record_array_type=RECORD_ARRAY_TYPE,
        record_parameters=RECORD_PARAMETERS,
        parameter_bytes=PARAMETER_BYTES,
        declined=DECLINED,
        busy=busy,
    )
