"""Small kernels in LLVM text, linked once, for the tests of pool and step tables."""

import functools

from luban.native.compile import compile_object
from luban.native.link import link
from luban.native.target import host_target

_HEAD = "(ptr %a, i64 %program, i64 %thread) nounwind {\n"
_TEXT = f"""
; slot 0: i64 array; array[program] += 1
define void @count{_HEAD}
  %array = load ptr, ptr %a
  %at = getelementptr i64, ptr %array, i64 %program
  %x = load i64, ptr %at
  %y = add i64 %x, 1
  store i64 %y, ptr %at
  ret void
}}

; slot 0: source, slot 1: destination; destination[program] = source[program] + source[0]
define void @spread{_HEAD}
  %source = load ptr, ptr %a
  %slot = getelementptr i64, ptr %a, i64 1
  %destination = load ptr, ptr %slot
  %from = getelementptr i64, ptr %source, i64 %program
  %to = getelementptr i64, ptr %destination, i64 %program
  %x = load i64, ptr %from
  %first = load i64, ptr %source
  %y = add i64 %x, %first
  store i64 %y, ptr %to
  ret void
}}

; slot 0: i64 array; array[program] = thread + 1
define void @who{_HEAD}
  %array = load ptr, ptr %a
  %at = getelementptr i64, ptr %array, i64 %program
  %y = add i64 %thread, 1
  store i64 %y, ptr %at
  ret void
}}

; slot 0: rounds of an empty loop
define void @work{_HEAD}
entry:
  %rounds = load i64, ptr %a
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void asm sideeffect "", "~{{memory}}"()
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %rounds
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""


@functools.cache
def _library() -> dict[str, int]:
    names = ["count", "spread", "who", "work"]
    library = link([compile_object(_TEXT, host_target())], names)
    return {name: library.address(name) for name in names}


def kernel(name: str) -> int:
    """The address of one of the kernels above."""
    return _library()[name]
