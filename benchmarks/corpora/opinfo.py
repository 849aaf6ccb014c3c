"""PyTorch's own samples for its core operators, compiled against eager: how many agree.

    python -m benchmarks.corpora.opinfo [--samples 6] [--ops add,mul] [--json F]

Samples whose results have sizes that only the run knows are left out: PyTorch gives no graph for
them. Where each of equal elements was, PyTorch leaves open for `topk` and `sort`: only values
count, and gradients only where ties are unlikely.

Each sample of `torch.testing._internal`'s OpInfo database whose operator is tagged core ATen goes
through AOTAutograd and our compiler, forward and, where PyTorch can, backward.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.testing._internal.common_methods_invocations import op_db

from luban.core.errors import LubanError
from luban.frontend.torch.decompositions import decompositions
from luban.torch.backend import compiled_graph

_RANDOM = {"bernoulli", "empty", "empty_like", "rand_like", "randn_like", "randint_like", "randn",
           "randint", "new_empty", "empty_permuted", "empty_strided", "normal", "uniform",
           "new_empty_strided", "nn.functional.dropout", "native_dropout_backward"}  # fmt: skip

_TIES = {"topk", "sort", "msort"}


def is_core(name: str) -> bool:
    """Whether an overload of the operator is in core ATen."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    overloads = (getattr(packet, overload) for overload in packet.overloads())
    return any(torch.Tag.core in overload.tags for overload in overloads)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [t for item in value for t in _tensors(item)]
    return []


def _compare(got: Any, want: Any) -> None:
    ours, theirs = _tensors(got), _tensors(want)
    assert len(ours) == len(theirs), f"{len(ours)} results, expected {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        loose = {torch.bfloat16: 3e-2, torch.float16: 5e-3}.get(b.dtype)
        options = {} if loose is None else {"rtol": loose, "atol": loose}
        torch.testing.assert_close(a, b, equal_nan=True, **options)


def run_sample(op: Any, sample: Any, backward: bool) -> None:
    """Compare one sample; AssertionError where values differ."""
    tensors = _tensors([sample.input, *sample.args])
    places = [t for t in tensors if t.requires_grad] if backward else []

    def call(*given: torch.Tensor) -> Any:
        found = iter(given)

        def swapped(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return next(found)
            if isinstance(value, list | tuple):
                return type(value)(swapped(item) for item in value)
            return value

        first, rest = swapped(sample.input), [swapped(a) for a in sample.args]
        found = _tensors(op(first, *rest, **sample.kwargs))
        return found[:1] if op.name in _TIES else found

    def compiler(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        return compiled_graph(graph, {})

    compiled = aot_function(
        call, fw_compiler=compiler, bw_compiler=compiler, decompositions=decompositions()
    )
    copies = [t if t.requires_grad else t.clone() for t in tensors]  # some operators write
    want, got = call(*tensors), compiled(*copies)
    _compare(got, want)
    if not places:
        return
    kept = [i for i, t in enumerate(want) if t.requires_grad and t.dtype.is_floating_point]
    if not kept:
        return
    torch.manual_seed(0)
    seeds = [torch.randn_like(want[i]) for i in kept]
    theirs = torch.autograd.grad([want[i] for i in kept], places, seeds, allow_unused=True)
    ours = torch.autograd.grad([got[i] for i in kept], places, seeds, allow_unused=True)
    for a, b in zip(ours, theirs, strict=True):
        if b is not None:
            _compare(a if a is not None else torch.zeros_like(b), b)


def run_op(op: Any, dtype: torch.dtype, most: int) -> tuple[int, int, dict[str, int]]:
    """(samples that agree, samples, what the others said) for one operator and dtype."""
    backward = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    backward = backward and not (op.name in _TIES and dtype.itemsize < 4)
    reasons: collections.Counter[str] = collections.Counter()
    good = count = 0
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=backward))
    for sample in samples[:: max(1, len(samples) // most)][:most]:
        try:
            run_sample(op, sample, backward)
            good += 1
        except DynamicOutputShapeException:
            continue
        except LubanError as error:
            reasons[f"refused: {str(error)[:200]}"] += 1
        except AssertionError as error:
            reasons[f"differs: {' '.join(str(error).split())[:160]}"] += 1
        except Exception as error:  # noqa: BLE001 - every failure is counted
            cause = error
            while cause.__cause__ is not None and not isinstance(cause, LubanError):
                cause = cause.__cause__  # type: ignore[assignment]
            reasons[f"{type(cause).__name__}: {' '.join(str(cause).split())[:200]}"] += 1
        count += 1
    return good, count, dict(reasons)


def main(arguments: list[str]) -> int:
    """Run the samples and print what failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--samples", type=int, default=6, help="at most, of each dtype")
    parser.add_argument("--ops", default="", help="names, separated by commas; all for every one")
    parser.add_argument("--dtypes", default="float32,bfloat16,int64,bool")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    only = set(filter(None, chosen.ops.split(",")))
    rows: list[dict[str, Any]] = []
    start = time.monotonic()
    for op in op_db:
        name = op.name
        core = is_core(op.aten_name or name) or only == {"all"}
        wanted = core and name not in _RANDOM if not only or only == {"all"} else name in only
        if not wanted:
            continue
        for text in chosen.dtypes.split(","):
            dtype = getattr(torch, text)
            if dtype not in op.supported_dtypes("cpu"):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                good, count, reasons = run_op(op, dtype, chosen.samples)
            label = f"{name}.{op.variant_test_name}" if op.variant_test_name else name
            rows.append({"op": label, "dtype": text, "good": good, "count": count, "why": reasons})
            if reasons:
                print(f"{label} {text}: {good} of {count}", file=sys.stderr)
                for reason, times in reasons.items():
                    print(f"    {times} x {reason}", file=sys.stderr)
    total = sum(row["count"] for row in rows)
    agreed = sum(row["good"] for row in rows)
    whole = sum(row["good"] == row["count"] for row in rows)
    seconds = time.monotonic() - start
    print(f"{agreed} of {total} samples agree; {whole} of {len(rows)} operators and dtypes whole; "
          f"{seconds:.0f} s")  # fmt: skip
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
