"""The thread pool's generated code: the runner of step tables and the workers' loop, as LLVM text.

A replay gets a run number. Every step has a claim word and a done word, each tagged with the run
number and counting chunks down to zero. Threads claim chunks by compare-and-swap; a step ends when
all its chunks are done, not when all threads have arrived, so a worker that sleeps or was put aside
by the operating system costs nothing. A worker with an old run number finds other tags, or zero
chunks, and leaves.
"""

from __future__ import annotations

from string import Template
from typing import Final

from luban.native import control_code, pool_cpu, table
from luban.native.target import Target

__all__ = ["pool_text"]

# The pool's context. Words that different threads write are on cache lines of their own.
EPOCH: Final = 0  # i32: number of the last run; also the futex word
SLEEPERS: Final = 64  # i32: workers that sleep, or are about to
TABLE: Final = 128  # ptr: what to run
LIMIT: Final = 136  # i32: threads that take part in the run
NUM_WORKERS: Final = 140  # i32: workers started
STOP: Final = 144  # i32: workers return when it is not 0
GENERATION: Final = 148  # i32: how many forks away from the first process, from 1
SPIN: Final = 152  # i64: looks at EPOCH before a worker sleeps
LOCK: Final = 192  # i32: 1 while a replay uses the workers
CONTEXT_BYTES: Final = 256

ENTRY_POINTS: Final = (
    "replay",
    "enter",
    "replay_entered",
    "resume",
    "worker",
    "wake",
    "run_nested",
)

# What a replay returns; 3 is call_code's. With control flow also: an instruction has ended it; or
# it is to be resumed (then with RAN_SHORT_OF_WORKERS perhaps).
RAN, RAN_SHORT_OF_WORKERS, REFUSED_BUSY, STOPPED, PAUSED = 0, 1, 2, 4, 8

# Bit of a worker's result that says it was told to stop; below it is the last run number it saw.
STOPPED_BIT: Final = 32

_YIELD_AFTER_LOOKS = 2000

_SOLO = """
; Every program of every step, in order, on this thread: no atomics.
define internal void @run_solo(ptr %table, i64 %thread, ptr %ticks) nounwind {
entry:
  %count = load i64, ptr %table
  %timed = icmp ne ptr %ticks, null
  br label %step
step:
  %s = phi i64 [ 0, %entry ], [ %s_next, %step_done ]
  br i1 %timed, label %tick, label %check
tick:
  %now = $ticks
  %tick_at = getelementptr i64, ptr %ticks, i64 %s
  store i64 %now, ptr %tick_at
  br label %check
check:
  %more = icmp ult i64 %s, %count
  br i1 %more, label %begin, label %exit
begin:
  %offset = mul i64 %s, $step_bytes
  %first_step = getelementptr i8, ptr %table, i64 $header_bytes
  %at = getelementptr i8, ptr %first_step, i64 %offset
  %kernel = load ptr, ptr %at
  %arguments_at = getelementptr i8, ptr %at, i64 $arguments
  %arguments = load ptr, ptr %arguments_at
  %programs_at = getelementptr i8, ptr %at, i64 $num_programs
  %programs = load i64, ptr %programs_at
  %any = icmp sgt i64 %programs, 0
  br i1 %any, label %program, label %step_done
program:
  %p = phi i64 [ 0, %begin ], [ %p_next, %program ]
  call void %kernel(ptr %arguments, i64 %p, i64 %thread)
  %p_next = add i64 %p, 1
  %again = icmp ult i64 %p_next, %programs
  br i1 %again, label %program, label %step_done
step_done:
  %s_next = add i64 %s, 1
  br label %step
exit:
  ret void
}
"""

_SHARED = """
; This thread's part of run number %epoch, up to the end of the run, or until it finds the run over.
define internal void @run_shared(ptr %table, i32 %epoch, i64 %thread, ptr %ticks) nounwind {
entry:
  %count = load i64, ptr %table
  %tag = zext i32 %epoch to i64
  %all_done = shl i64 %tag, 32
  %timed = icmp ne ptr %ticks, null
  br label %step
step:
  %s = phi i64 [ 0, %entry ], [ %s_next, %step_done ]
  br i1 %timed, label %tick, label %check
tick:
  %now = $ticks
  %tick_at = getelementptr i64, ptr %ticks, i64 %s
  store i64 %now, ptr %tick_at
  br label %check
check:
  %more = icmp ult i64 %s, %count
  br i1 %more, label %begin, label %exit
begin:
  %offset = mul i64 %s, $step_bytes
  %first_step = getelementptr i8, ptr %table, i64 $header_bytes
  %at = getelementptr i8, ptr %first_step, i64 %offset
  %claim = getelementptr i8, ptr %at, i64 $claim
  %done = getelementptr i8, ptr %at, i64 $done
  br label %claim_look
claim_look:
  %mine = phi i64 [ 0, %begin ], [ %mine, %claim_try ], [ %mine_next, %chunk_done ]
  %word = load atomic i64, ptr %claim acquire, align 8
  %word_tag = lshr i64 %word, 32
  %current = icmp eq i64 %word_tag, %tag
  br i1 %current, label %claim_left, label %exit
claim_left:
  %left = and i64 %word, 4294967295
  %none = icmp eq i64 %left, 0
  br i1 %none, label %report, label %claim_try
claim_try:
  %word_next = sub i64 %word, 1
  %swap = cmpxchg ptr %claim, i64 %word, i64 %word_next acq_rel monotonic, align 8
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %chunk, label %claim_look
chunk:
  ; The run cannot end before this chunk is reported: from here on the step's fields stand still.
  %kernel = load ptr, ptr %at
  %arguments_at = getelementptr i8, ptr %at, i64 $arguments
  %arguments = load ptr, ptr %arguments_at
  %programs_at = getelementptr i8, ptr %at, i64 $num_programs
  %programs = load i64, ptr %programs_at
  %grain_at = getelementptr i8, ptr %at, i64 $grain
  %grain = load i64, ptr %grain_at
  %chunks_at = getelementptr i8, ptr %at, i64 $num_chunks
  %chunks = load i64, ptr %chunks_at
  %index = sub i64 %chunks, %left
  %first = mul i64 %index, %grain
  %beyond = add i64 %first, %grain
  %whole = icmp ult i64 %beyond, %programs
  %end = select i1 %whole, i64 %beyond, i64 %programs
  br label %program
program:
  %p = phi i64 [ %first, %chunk ], [ %p_next, %program ]
  call void %kernel(ptr %arguments, i64 %p, i64 %thread)
  %p_next = add i64 %p, 1
  %again = icmp ult i64 %p_next, %end
  br i1 %again, label %program, label %chunk_done
chunk_done:
  %mine_next = add i64 %mine, 1
  br label %claim_look
report:
  %helped = icmp ne i64 %mine, 0
  br i1 %helped, label %report_mine, label %wait
report_mine:
  %before = atomicrmw sub ptr %done, i64 %mine acq_rel, align 8
  %after = sub i64 %before, %mine
  %was_last = icmp eq i64 %after, %all_done
  br i1 %was_last, label %step_done, label %wait
wait:
  %looks = phi i64 [ 0, %report ], [ 0, %report_mine ], [ %looks_next, %wait_on ]
  %undone = load atomic i64, ptr %done acquire, align 8
  %finished = icmp eq i64 %undone, %all_done
  br i1 %finished, label %step_done, label %wait_check
wait_check:
  %undone_tag = lshr i64 %undone, 32
  %still_current = icmp eq i64 %undone_tag, %tag
  br i1 %still_current, label %wait_pause, label %exit
wait_pause:
  $pause
  %looks_next = add i64 %looks, 1
  %long = icmp ugt i64 %looks, $yield_after
  br i1 %long, label %wait_yield, label %wait_on
wait_yield:
  %yielded = call i32 @yield_cpu()
  br label %wait_on
wait_on:
  br label %wait
step_done:
  %s_next = add i64 %s, 1
  br label %step
exit:
  ret void
}
"""

_WORKER = """
; A worker's life: look for a new run number for a while, then sleep.
; Returns the last run number seen, with bit $stopped_bit set if it was told to stop.
define i64 @worker(ptr %context, i64 %thread, i32 %seen) nounwind {
entry:
  %sleepers = getelementptr i8, ptr %context, i64 $sleepers
  %table_at = getelementptr i8, ptr %context, i64 $table
  %limit_at = getelementptr i8, ptr %context, i64 $limit
  %stop_at = getelementptr i8, ptr %context, i64 $stop
  %spin_at = getelementptr i8, ptr %context, i64 $spin
  br label %top
top:
  %last = phi i32 [ %seen, %entry ], [ %last, %awake ], [ %epoch, %run ], [ %epoch, %take_part ]
  %spin = load i64, ptr %spin_at
  br label %look
look:
  %looks = phi i64 [ 0, %top ], [ %looks_next, %look_on ]
  %epoch = load atomic i32, ptr %context acquire, align 4
  %news = icmp ne i32 %epoch, %last
  br i1 %news, label %check_stop, label %look_on
look_on:
  $pause
  %looks_next = add i64 %looks, 1
  %enough = icmp ugt i64 %looks_next, %spin
  br i1 %enough, label %drowsy, label %look
drowsy:
  ; The runner changes EPOCH and then reads SLEEPERS; here it is the other way round: one of the two
  ; sees the other.
  %sleepers_before = atomicrmw add ptr %sleepers, i32 1 seq_cst, align 4
  %epoch_again = load atomic i32, ptr %context seq_cst, align 4
  %late_news = icmp ne i32 %epoch_again, %last
  br i1 %late_news, label %awake, label %sleep
sleep:
  $sleep
awake:
  %sleepers_after = atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 4
  br label %top
rest:
  %sleepers_rest = atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 4
  %last_seen = zext i32 %last to i64
  ret i64 %last_seen
check_stop:
  %stop = load atomic i32, ptr %stop_at acquire, align 4
  %stopping = icmp ne i32 %stop, 0
  br i1 %stopping, label %stopped, label %take_part
take_part:
  %limit = load atomic i32, ptr %limit_at acquire, align 4
  %limit_wide = zext i32 %limit to i64
  %invited = icmp ult i64 %thread, %limit_wide
  br i1 %invited, label %run, label %top
run:
  ; If a later run has replaced the table by now, its tags are not this epoch's.
  %table = load atomic ptr, ptr %table_at acquire, align 8
  call void @run_shared(ptr %table, i32 %epoch, i64 %thread, ptr null)
  br label %top
stopped:
  %epoch_wide = zext i32 %epoch to i64
  %stopped_bit = shl i64 1, $stopped_bit
  %result = or i64 %epoch_wide, %stopped_bit
  ret i64 %result
}
"""

_WAKE = """
define void @wake(ptr %context) nounwind {
entry:
  %changed = atomicrmw add ptr %context, i32 1 seq_cst, align 4
  $wake
  ret void
}
"""

_REPLAY = """
; Run %table once; %ticks is null or i64[num_steps + 1]. Returns one of the three results.
define i32 @replay(ptr %table, ptr %ticks) nounwind {
entry:
  %entered = call i32 @enter(ptr %table)
  %refused = icmp eq i32 %entered, 0
  br i1 %refused, label %leave, label %run
run:
  %result = call i32 @replay_entered(ptr %table, ptr %ticks)
  br label %leave
leave:
  %returned = phi i32 [ $refused_busy, %entry ], [ %result, %run ]
  ret i32 %returned
}

; Take %table for this thread: 1, or 0 if another replay of it is under way. After a 1 the caller
; may change the table and what it points to, and must call @replay_entered.
define i32 @enter(ptr %table) nounwind {
entry:
  %context_at = getelementptr i8, ptr %table, i64 $context
  %context = load ptr, ptr %context_at
  %generation_at = getelementptr i8, ptr %context, i64 $generation
  %generation = load i32, ptr %generation_at
  %busy_at = getelementptr i8, ptr %table, i64 $busy
  %busy = load atomic i32, ptr %busy_at monotonic, align 4
  %running = icmp eq i32 %busy, %generation
  br i1 %running, label %refused, label %try
try:
  %swap = cmpxchg ptr %busy_at, i32 %busy, i32 %generation acquire monotonic, align 4
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %entered, label %refused
entered:
  ret i32 1
refused:
  ret i32 0
}

; Go on with a replay that was paused.
define i32 @resume(ptr %table) nounwind {
entry:
  %entered = call i32 @enter(ptr %table)
  %refused = icmp eq i32 %entered, 0
  br i1 %refused, label %leave, label %run
run:
  %result = call i32 @run_entered(ptr %table, ptr null)
  br label %leave
leave:
  %returned = phi i32 [ $refused_busy, %entry ], [ %result, %run ]
  ret i32 %returned
}

; The replay itself, after a successful @enter. %ticks is null or as @run_control wants it where the
; table has control.
define i32 @replay_entered(ptr %table, ptr %ticks) nounwind {
  %place_at = getelementptr i8, ptr %table, i64 $place
  store i64 0, ptr %place_at
  %result = call i32 @run_entered(ptr %table, ptr %ticks)
  ret i32 %result
}

define internal i32 @run_entered(ptr %table, ptr %ticks) nounwind {
entry:
  %stop_slot = getelementptr i8, ptr %table, i64 $stop_cell
  %stop_cell = load ptr, ptr %stop_slot
  %may_stop = icmp ne ptr %stop_cell, null
  br i1 %may_stop, label %clear, label %begin
clear:
  store i64 0, ptr %stop_cell
  br label %begin
begin:
  %code_at = getelementptr i8, ptr %table, i64 $control
  %code = load ptr, ptr %code_at
  %plain = icmp eq ptr %code, null
  br i1 %plain, label %steps, label %control
steps:
  %steps_result = call i32 @run_steps(ptr %table, ptr %ticks)
  br label %ended
control:
  %control_result = call i32 @run_control(ptr %table, i64 0, i1 false, ptr %ticks)
  br label %ended
ended:
  %result = phi i32 [ %steps_result, %steps ], [ %control_result, %control ]
  br i1 %may_stop, label %look, label %leave
look:
  %stop = load i64, ptr %stop_cell
  %stopped = icmp ne i64 %stop, 0
  %looked = select i1 %stopped, i32 $stopped, i32 %result
  br label %leave
leave:
  %returned = phi i32 [ %result, %ended ], [ %looked, %look ]
  %busy_at = getelementptr i8, ptr %table, i64 $busy
  store atomic i32 0, ptr %busy_at release, align 4
  ret i32 %returned
}

; The steps of a table, with the workers if it asks for them and they are free.
define internal i32 @run_steps(ptr %table, ptr %ticks) nounwind {
entry:
  %context_at = getelementptr i8, ptr %table, i64 $context
  %context = load ptr, ptr %context_at
  %threads_at = getelementptr i8, ptr %table, i64 $num_threads
  %lock_at = getelementptr i8, ptr %context, i64 $lock
  %workers_at = getelementptr i8, ptr %context, i64 $num_workers
  %threads = load i32, ptr %threads_at
  %alone = icmp sle i32 %threads, 1
  br i1 %alone, label %solo, label %try_lock
try_lock:
  %lock_swap = cmpxchg ptr %lock_at, i32 0, i32 1 acquire monotonic, align 4
  %locked = extractvalue { i32, i1 } %lock_swap, 1
  br i1 %locked, label %check_workers, label %solo
check_workers:
  %workers = load i32, ptr %workers_at
  %unstaffed = icmp eq i32 %workers, 0
  br i1 %unstaffed, label %solo_locked, label %publish
solo_locked:
  call void @run_solo(ptr %table, i64 0, ptr %ticks)
  br label %unlock
publish:
  %last_epoch = load atomic i32, ptr %context monotonic, align 4
  %epoch = add i32 %last_epoch, 1
  call void @publish(ptr %table, ptr %context, i32 %epoch, i32 %threads)
  call void @run_shared(ptr %table, i32 %epoch, i64 0, ptr %ticks)
  br label %unlock
unlock:
  store atomic i32 0, ptr %lock_at release, align 4
  %crew = add i32 %workers, 1
  %short = icmp sgt i32 %threads, %crew
  %result = zext i1 %short to i32
  br label %leave
solo:
  call void @run_solo(ptr %table, i64 0, ptr %ticks)
  br label %leave
leave:
  %returned = phi i32 [ %result, %unlock ], [ $ran, %solo ]
  ret i32 %returned
}

; Tag every step with the new run number, then announce the run.
define internal void @publish(ptr %table, ptr %context, i32 %epoch, i32 %threads) nounwind {
entry:
  %count = load i64, ptr %table
  %tag = zext i32 %epoch to i64
  %tag_high = shl i64 %tag, 32
  %first_step = getelementptr i8, ptr %table, i64 $header_bytes
  br label %check
check:
  %s = phi i64 [ 0, %entry ], [ %s_next, %step ]
  %more = icmp ult i64 %s, %count
  br i1 %more, label %step, label %announce
step:
  %offset = mul i64 %s, $step_bytes
  %at = getelementptr i8, ptr %first_step, i64 %offset
  %chunks_at = getelementptr i8, ptr %at, i64 $num_chunks
  %chunks = load i64, ptr %chunks_at
  %word = or i64 %tag_high, %chunks
  %done = getelementptr i8, ptr %at, i64 $done
  store atomic i64 %word, ptr %done release, align 8
  %claim = getelementptr i8, ptr %at, i64 $claim
  store atomic i64 %word, ptr %claim release, align 8
  %s_next = add i64 %s, 1
  br label %check
announce:
  %table_at = getelementptr i8, ptr %context, i64 $table
  store atomic ptr %table, ptr %table_at release, align 8
  %limit_at = getelementptr i8, ptr %context, i64 $limit
  store atomic i32 %threads, ptr %limit_at release, align 4
  %changed = atomicrmw add ptr %context, i32 1 seq_cst, align 4
  %sleepers_at = getelementptr i8, ptr %context, i64 $sleepers
  %sleepers = load atomic i32, ptr %sleepers_at seq_cst, align 4
  %any = icmp ne i32 %sleepers, 0
  br i1 %any, label %wake_them, label %announced
wake_them:
  $wake
  br label %announced
announced:
  ret void
}
"""


def pool_text(target: Target, futex: bool) -> str:
    """The whole module for `target`; its entry points are in ENTRY_POINTS.

    It imports @yield_cpu and @memmove, and @syscall if `futex`.
    """
    architecture = target.architecture
    call = {
        "call": pool_cpu.FUTEX_CALL_NUMBER[architecture],
        "wait": pool_cpu.FUTEX_WAIT_PRIVATE,
        "wake": pool_cpu.FUTEX_WAKE_PRIVATE,
    }
    parts = [
        pool_cpu.TICKS_DECLARATION[architecture],
        pool_cpu.PAUSE_DECLARATION[architecture],
        "declare i32 @yield_cpu()",
        pool_cpu.FUTEX_DECLARATION if futex else "",
        _SOLO,
        control_code.TEXT,
        _SHARED,
        _WORKER,
        _WAKE,
        _REPLAY,
    ]
    return Template("\n".join(parts)).substitute(
        pause=pool_cpu.PAUSE[architecture],
        ticks=pool_cpu.TICKS[architecture],
        sleep=Template(pool_cpu.FUTEX_WAIT).substitute(call) if futex else pool_cpu.POLL_WAIT,
        wake=Template(pool_cpu.FUTEX_WAKE).substitute(call) if futex else "",
        yield_after=_YIELD_AFTER_LOOKS,
        stopped_bit=STOPPED_BIT,
        ran=RAN,
        refused_busy=REFUSED_BUSY,
        stopped=STOPPED,
        paused=PAUSED,
        slice=pool_cpu.SLICE_TICKS[architecture],
        **_offsets(),
        **_opcodes(),
    )


def _offsets() -> dict[str, int]:
    context = {
        "sleepers": SLEEPERS,
        "table": TABLE,
        "limit": LIMIT,
        "num_workers": NUM_WORKERS,
        "stop": STOP,
        "generation": GENERATION,
        "spin": SPIN,
        "lock": LOCK,
    }
    step_table = {
        "busy": table.BUSY,
        "context": table.CONTEXT,
        "num_threads": table.NUM_THREADS,
        "control": table.CONTROL,
        "stop_cell": table.STOP_CELL,
        "place": table.PLACE,
        "header_bytes": table.HEADER_BYTES,
        "step_bytes": table.STEP_BYTES,
        "arguments": table.ARGUMENTS,
        "num_programs": table.NUM_PROGRAMS,
        "grain": table.GRAIN,
        "num_chunks": table.NUM_CHUNKS,
        "claim": table.CLAIM,
        "done": table.DONE,
    }
    return context | step_table


def _opcodes() -> dict[str, int]:
    names = "RUN SET COPY ADD FLIP MOVE UNLESS REACHED BEYOND JUMP STOP TURN UNFINISHED ENDED"
    return {name: getattr(control_code, name) for name in names.split()}
