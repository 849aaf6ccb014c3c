"""What the pool's code takes from the processor and the system: pause, clock, sleep."""

from __future__ import annotations

__all__ = [
    "FUTEX_CALL_NUMBER",
    "FUTEX_DECLARATION",
    "FUTEX_WAIT",
    "FUTEX_WAIT_PRIVATE",
    "FUTEX_WAKE",
    "FUTEX_WAKE_PRIVATE",
    "PAUSE",
    "PAUSE_DECLARATION",
    "POLL_WAIT",
    "SLICE_TICKS",
    "TICKS",
    "TICKS_DECLARATION",
]

# Arm's own "yield" is no pause on most cores; an instruction barrier takes about as long as x86's.
PAUSE = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.isb(i32 15)",
}
PAUSE_DECLARATION = {
    "x86_64": "declare void @llvm.x86.sse2.pause()",
    "aarch64": "declare void @llvm.aarch64.isb(i32)",
}
# A counter of constant rate: x86's time stamp, Arm's virtual timer.
TICKS = {
    "x86_64": "call i64 @llvm.readcyclecounter()",
    "aarch64": "call i64 @llvm.read_volatile_register.i64(metadata !0)",
}
TICKS_DECLARATION = {
    "x86_64": "declare i64 @llvm.readcyclecounter()",
    "aarch64": ('declare i64 @llvm.read_volatile_register.i64(metadata)\n!0 = !{!"cntvct_el0"}'),
}
# How long control flow goes on before Python has a look: some 50 ms.
SLICE_TICKS = {"x86_64": 1 << 27, "aarch64": 1 << 22}
FUTEX_CALL_NUMBER = {"x86_64": 202, "aarch64": 98}
FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE = 128, 129

# Linux: sleep until the run number changes. Elsewhere the worker returns to Python to sleep.
FUTEX_DECLARATION = "declare i64 @syscall(i64, ...)"
FUTEX_WAIT = (
    "%slept = call i64 (i64, ...) @syscall(i64 $call, ptr %context, i32 $wait, i32 %last, "
    "ptr null, ptr null, i32 0)\n  br label %awake"
)
FUTEX_WAKE = (
    "%woken = call i64 (i64, ...) @syscall(i64 $call, ptr %context, i32 $wake, i32 2147483647, "
    "ptr null, ptr null, i32 0)"
)
POLL_WAIT = "br label %rest"
