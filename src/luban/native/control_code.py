"""Control flow between step tables, as LLVM text: a few instructions, followed by one thread.

A table with control has, besides its header, a list of instructions: run a segment (a table of its
own), move a state, change an argument slot, go elsewhere if a cell says so. Kernels write the
cells, so a loop whose condition is computed needs no Python. In a replay the calling thread follows
the instructions and every segment is shared with the workers; as a program of a step (@run_nested)
a table is run whole by the thread that claims it, while others run other programs.

A loop may go on for ever, and Python sees Ctrl-C only between native calls. So a replay that has
taken a while is paused at the end of a turn: it returns, with the place in the table's header, and
@resume goes on there. A nested table pauses in the same way; an instruction of the table around it
sees that it has not ended, and pauses that one.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TEXT"]

# One instruction: four i64. `cell` and `slot` are addresses; a slot holds an address itself.
WORDS: Final = 4
END: Final = 0  # leave b as the place to go on with: 0, or ENDED
RUN: Final = 1  # replay the table a
SET: Final = 2  # i64 at cell a = b
COPY: Final = 3  # slot a = slot b
ADD: Final = 4  # i64 at a += b
FLIP: Final = 5  # i64 at a = b - itself: from one of two addresses to the other
MOVE: Final = 6  # c bytes from where slot b points to where slot a points
UNLESS: Final = 7  # go to c if the byte where slot a points is 0
REACHED: Final = 8  # go to c if the i64 at cell a >= (unsigned) the i64 where slot b points
BEYOND: Final = 9  # go to c if the i64 at cell a >= (unsigned) b
JUMP: Final = 10  # go to c
STOP: Final = 11  # i64 at cell a = b, and go to c, the end
TURN: Final = 12  # i64 at cell a += 1, and go to c; pause if it is time
UNFINISHED: Final = 13  # pause and go on at c later, if the i64 at cell a is not ENDED

ENDED: Final = -1  # in the place of a table that has run to its end

TEXT: Final = """
declare ptr @memmove(ptr, ptr, i64)

; Follow the instructions of %table from the place in its header. Segments run on this thread alone
; if %alone, else with the workers. %ticks is null or i64[instructions]: time spent in each. Returns
; the pool's result.
define internal i32 @run_control(ptr %table, i64 %thread, i1 %alone, ptr %ticks) nounwind {
entry:
  %code_at = getelementptr i8, ptr %table, i64 $control
  %code = load ptr, ptr %code_at
  %place_at = getelementptr i8, ptr %table, i64 $place
  %place = load i64, ptr %place_at
  %start = $ticks
  %timed = icmp ne ptr %ticks, null
  br label %fetch
fetch:
  %pc = phi i64 [ %place, %entry ], [ %target, %go ], [ %pc_next, %next ]
  %result = phi i32 [ $ran, %entry ], [ %result, %go ], [ %result_next, %next ]
  %at = getelementptr [4 x i64], ptr %code, i64 %pc
  %op = load i64, ptr %at
  %a_at = getelementptr i8, ptr %at, i64 8
  %a = load ptr, ptr %a_at
  %b_at = getelementptr i8, ptr %at, i64 16
  %b = load i64, ptr %b_at
  %c_at = getelementptr i8, ptr %at, i64 24
  %target = load i64, ptr %c_at
  %b_pointer = inttoptr i64 %b to ptr
  switch i64 %op, label %end [
    i64 $RUN, label %run
    i64 $SET, label %set
    i64 $COPY, label %copy
    i64 $ADD, label %add
    i64 $FLIP, label %flip
    i64 $MOVE, label %move
    i64 $UNLESS, label %unless
    i64 $REACHED, label %reached
    i64 $BEYOND, label %beyond
    i64 $JUMP, label %go
    i64 $STOP, label %stop
    i64 $TURN, label %turn
    i64 $UNFINISHED, label %unfinished
  ]
run:
  br i1 %timed, label %run_timed, label %run_plain
run_timed:
  %before = $ticks
  %timed_result = call i32 @replay_entered(ptr %a, ptr null)
  %after = $ticks
  %spent = sub i64 %after, %before
  %tick_at = getelementptr i64, ptr %ticks, i64 %pc
  %so_far = load i64, ptr %tick_at
  %in_all = add i64 %so_far, %spent
  store i64 %in_all, ptr %tick_at
  br label %next
run_plain:
  br i1 %alone, label %run_alone, label %run_with
run_alone:
  call void @run_solo(ptr %a, i64 %thread, ptr null)
  br label %next
run_with:
  %run_result = call i32 @replay_entered(ptr %a, ptr null)
  br label %next
set:
  store i64 %b, ptr %a
  br label %next
copy:
  %copied = load i64, ptr %b_pointer
  store i64 %copied, ptr %a
  br label %next
add:
  %old = load i64, ptr %a
  %sum = add i64 %old, %b
  store i64 %sum, ptr %a
  br label %next
flip:
  %one = load i64, ptr %a
  %other = sub i64 %b, %one
  store i64 %other, ptr %a
  br label %next
move:
  %destination = load ptr, ptr %a
  %source = load ptr, ptr %b_pointer
  %moved = call ptr @memmove(ptr %destination, ptr %source, i64 %target)
  br label %next
unless:
  %flag_at = load ptr, ptr %a
  %flag = load i8, ptr %flag_at
  %is_false = icmp eq i8 %flag, 0
  br i1 %is_false, label %go, label %next
reached:
  %count = load i64, ptr %a
  %limit_at = load ptr, ptr %b_pointer
  %limit = load i64, ptr %limit_at
  %is_reached = icmp uge i64 %count, %limit
  br i1 %is_reached, label %go, label %next
beyond:
  %number = load i64, ptr %a
  %is_beyond = icmp uge i64 %number, %b
  br i1 %is_beyond, label %go, label %next
stop:
  store i64 %b, ptr %a
  br label %go
turn:
  %turns = load i64, ptr %a
  %one_more = add i64 %turns, 1
  store i64 %one_more, ptr %a
  %now = $ticks
  %lasted = sub i64 %now, %start
  %is_long = icmp ugt i64 %lasted, $slice
  br i1 %is_long, label %pause, label %go
unfinished:
  %nested_place = load i64, ptr %a
  %has_ended = icmp eq i64 %nested_place, $ENDED
  br i1 %has_ended, label %next, label %pause
pause:
  store i64 %target, ptr %place_at
  %paused_result = or i32 %result, $paused
  ret i32 %paused_result
go:
  br label %fetch
next:
  %step_result = phi i32 [ %timed_result, %run_timed ], [ $ran, %run_alone ],
    [ %run_result, %run_with ], [ $ran, %set ], [ $ran, %copy ], [ $ran, %add ], [ $ran, %flip ],
    [ $ran, %move ], [ $ran, %unless ], [ $ran, %reached ], [ $ran, %beyond ],
    [ $ran, %unfinished ]
  %result_next = or i32 %result, %step_result
  %pc_next = add i64 %pc, 1
  br label %fetch
end:
  store i64 %b, ptr %place_at
  ret i32 %result
}

; A kernel: program number p runs the table whose address is argument p, on this thread. A table
; with control goes on at its place, unless that is ENDED.
define void @run_nested(ptr %arguments, i64 %program, i64 %thread) nounwind {
entry:
  %slot = getelementptr ptr, ptr %arguments, i64 %program
  %table = load ptr, ptr %slot
  %code_at = getelementptr i8, ptr %table, i64 $control
  %code = load ptr, ptr %code_at
  %plain = icmp eq ptr %code, null
  br i1 %plain, label %steps, label %control
steps:
  call void @run_solo(ptr %table, i64 %thread, ptr null)
  ret void
control:
  %place_at = getelementptr i8, ptr %table, i64 $place
  %place = load i64, ptr %place_at
  %ended = icmp eq i64 %place, $ENDED
  br i1 %ended, label %leave, label %follow
follow:
  %result = call i32 @run_control(ptr %table, i64 %thread, i1 true, ptr null)
  br label %leave
leave:
  ret void
}
"""
