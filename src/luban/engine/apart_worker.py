"""The compile process's side of `apart`: a model from its file to the cache."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from luban.core import settings
from luban.engine.apart import Answer, Request, raised
from luban.engine.artifact_writer import ArtifactWriter, Written
from luban.engine.compilation import compile_source
from luban.native.cache import default_cache
from luban.native.call import prepare_runtime

__all__ = ["compile_model"]

# Settings, the folder, and the list of warnings are the process's: one model at a time.
_one_at_a_time = threading.Lock()


def compile_model(payload: bytes) -> tuple[bytes, Callable[[], None] | None]:
    """Compile what a Request asks for: an Answer, and what is left to be done after it."""
    request: Request = pickle.loads(payload)
    with _one_at_a_time, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        settings.adopt(request.variables)
        written: Written | None = None
        error = None
        try:
            os.chdir(request.folder)
            written = _compiled(request)
            if not written.is_large:
                written.store()
        except Exception as found:  # noqa: BLE001  # whatever it is: the parent raises it
            error = raised(found, traceback.format_exc())
        told = [(each.category.__name__, str(each.message)) for each in caught]
        _give_back()
    if written is None:
        return pickle.dumps(Answer(b"", {}, told, error), 5), None
    answer = pickle.dumps(Answer(written.record, written.names, told, error), 5)
    return answer, _stored_later(written) if written.is_large else None


def _compiled(request: Request) -> Written:
    runtime = threading.Thread(target=prepare_runtime)  # LLVM loads while Python does
    runtime.start()
    writer = ArtifactWriter(request.key, default_cache())
    source = request.source if isinstance(request.source, bytes) else Path(request.source)
    try:
        compilation = compile_source(
            source,
            request.num_threads,
            request.without,
            request.shapes,
            request.target,
            request.numerics,
            writer.start_draft,
        )
        return writer.prepare(compilation)
    except BaseException:
        writer.discard()
        raise
    finally:
        runtime.join()


def _stored_later(written: Written) -> Callable[[], None]:
    def store() -> None:
        written.store()
        _give_back()

    return store


def _give_back() -> None:
    """Return free memory to the system: this process may idle beside its parent for a while."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
