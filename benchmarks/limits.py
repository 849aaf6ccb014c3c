"""The limit of a model on this machine: what its kernels would take if nothing held them up.

Imported in a worker process only, as it loads Luban's compiler.
"""

from benchmarks.cases import Feeds
from luban.engine.hardware import known_hardware
from luban.engine.model import load
from luban.engine.timed_calls import timed_calls
from luban.profiler.roofline import judged


def least_seconds(path: str, feeds: Feeds, threads: int) -> float:
    """The least seconds of a call with these inputs.

    The machine is measured when the first model of a run asks, as it is described in the cache's
    folder, which is the run's own.
    """
    model = load(path, threads=threads, cache=False)
    inputs = [feeds[info.name] for info in model.inputs]
    calls = timed_calls(model.compiled, inputs, seconds=0.0)
    return judged(model.compiled, calls, known_hardware(model.compiled.target)).limit_s
