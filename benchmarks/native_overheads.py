"""What the native toolbox itself costs: regions, steps, calls, compiling, loading.

    python -m benchmarks.native_overheads

Each figure is the fastest of several windows, as everything here is far below a time slice; ratios
are to the row that a table names first, from the same run.
"""

import ctypes
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.report import table
from luban.native.call import ArrayParameter, bind_arrays, bind_arrays_in_python, bind_replay
from luban.native.compile import compile_many, compile_object
from luban.native.link import link
from luban.native.pool import default_pool
from luban.native.target import host_target
from luban.runtime.program import Arguments, Step, StepTable

# @meet ends when a second program, on another thread, has begun too.
KERNELS = """
define void @empty(ptr %a, i64 %p, i64 %t) nounwind {
  ret void
}
define void @meet(ptr %arrived, i64 %p, i64 %t) nounwind {
entry:
  %before = atomicrmw add ptr %arrived, i64 1 acq_rel, align 8
  %pair = or i64 %before, 1
  br label %wait
wait:
  %now = load atomic i64, ptr %arrived acquire, align 8
  %both = icmp ugt i64 %now, %pair
  br i1 %both, label %end, label %wait
end:
  ret void
}
"""

# A window of replays inside one native call, so that Python is not in the figure.
REPEAT = """
declare i32 @replay(ptr, ptr)
define void @repeat(ptr %table, i64 %times) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %result = call i32 @replay(ptr %table, ptr null)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %times
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


def best_seconds(function: Callable[[], object], windows: int = 9) -> float:
    """The fastest of several windows, after one to warm up."""
    function()
    fastest = float("inf")
    for _ in range(windows):
        start = time.perf_counter()
        function()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def with_ratios(name: str, unit: str, rows: Sequence[tuple[str, float]]) -> str:
    """A table of figures and of their ratios to the first one."""
    lines = [[what, f"{value:.4g}", f"{value / rows[0][1]:.2f}"] for what, value in rows]
    return table([name, unit, "ratio to the first"], lines)


def replays(empty: int, meet: int) -> str:
    """Step tables of kernels that do nothing: what a step costs alone and shared by threads."""
    runner = default_pool().replay_address
    library = link([compile_object(REPEAT, host_target())], ["repeat"], {"replay": runner})
    repeat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("repeat"))
    rows = []
    for threads in (1, 2):
        for num_steps, programs in ((1, 2), (57, 2), (57, 16)):
            steps = [Step(empty, 0, programs, grain=1)] * num_steps
            program = StepTable(steps, threads)
            times = 100_000 // num_steps
            seconds = best_seconds(lambda: repeat(program.address, times))  # noqa: B023
            what = f"{threads} threads, {num_steps} steps of {programs} programs: a step"
            rows.append((what, seconds / times / num_steps * 1e9))
    arrived = Arguments(1)
    for num_steps in (1, 57):
        program = StepTable([Step(meet, arrived.address(), 2, grain=1)] * num_steps, 2)
        times = 20_000 // num_steps
        seconds = best_seconds(lambda: repeat(program.address, times))  # noqa: B023
        what = f"2 threads, {num_steps} steps in which both meet: a step"
        rows.append((what, seconds / times / num_steps * 1e9))
    return with_ratios("replay", "ns", rows)


def calls(empty: int) -> str:
    """Calls from Python: arrays checked, slots filled, one empty kernel run."""
    program = StepTable([Step(empty, 0, 1)], 1)
    arguments = Arguments(2)
    array = np.zeros((8, 8), np.float32)
    parameters = [
        ArrayParameter(array.dtype, array.shape, ((arguments.address(slot), 0),))
        for slot in range(2)
    ]
    pool = default_pool()
    replay = bind_replay(pool, program.address)
    bound = bind_arrays(pool, program.address, parameters)
    in_python = bind_arrays_in_python(pool, program.address, parameters)

    def loop(function: Callable[[], object], times: int = 20_000) -> float:
        def window() -> None:
            for _ in range(times):
                function()

        return best_seconds(window) / times * 1e9

    rows = [
        ("an empty Python function", loop(lambda: None)),
        ("replay, builtin", loop(replay)),
        ("replay, StepTable", loop(program.replay)),
        ("replay, ctypes", loop(lambda: pool.replay_native(program.address, None))),
        ("two arrays, builtin", loop(lambda: bound(array, array))),
        ("two arrays, Python and ctypes", loop(lambda: in_python(array, array), 2_000)),
    ]
    return with_ratios("call from Python", "ns", rows)


def synthetic_kernel(number: int, size: int = 400) -> str:
    """A module about as large as a real kernel: a long chain of vector arithmetic."""
    target = host_target()
    vector = f"<{target.lanes(32)} x float>"
    lines = [f"define void @k{number}(ptr %p) {target.function_attributes} {{"]
    for i in range(size):
        lines.append(f"  %p{i} = getelementptr {vector}, ptr %p, i64 {i + number}")
        lines.append(f"  %v{i} = load {vector}, ptr %p{i}, align 4")
        previous = f"%s{i - 1}" if i else "%v0"
        lines.append(f"  %s{i} = fadd {vector} {previous}, %v{i}")
        lines.append(f"  store {vector} %s{i}, ptr %p{i}, align 4")
    return "\n".join([*lines, "  ret void", "}"])


def compiling() -> str:
    """Twelve kernels on one thread and on two, and linking what came out."""
    texts = [synthetic_kernel(number) for number in range(12)]
    target = host_target()
    objects = compile_many(texts, target, 1)

    def link_all() -> None:
        for number, data in enumerate(objects):
            link([data], [f"k{number}"]).close()

    rows = [
        ("compile, 1 thread", best_seconds(lambda: compile_many(texts, target, 1), 3) * 1e3),
        ("compile, 2 threads", best_seconds(lambda: compile_many(texts, target, 2), 3) * 1e3),
        ("link the objects", best_seconds(link_all, 3) * 1e3),
    ]
    return with_ratios(f"{len(texts)} kernels", "ms", rows)


def main() -> int:
    """Print the three tables."""
    kernels = link([compile_object(KERNELS, host_target())], ["empty", "meet"])
    empty, meet = kernels.address("empty"), kernels.address("meet")
    print("\n\n".join([replays(empty, meet), calls(empty), compiling()]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
