"""ONNX models as graphs: `import_model` is the door."""

from __future__ import annotations

from luban.frontend.onnx import run_time_host as run_time_host
from luban.frontend.onnx.importer import Imported, import_model

__all__ = ["Imported", "import_model"]
