"""PyTorch in: ATen graphs, as torch.compile and torch.export make them, to our graphs."""

from luban.frontend.torch.exported import import_exported
from luban.frontend.torch.importer import Imported, import_graph

__all__ = ["Imported", "import_exported", "import_graph"]
