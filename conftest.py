"""What pytest leaves alone where a package that only an extra brings is missing."""

from importlib.util import find_spec

# These modules import PyTorch, and `luban[torch]` brings it: their doctests need it to be there.
_NEED_TORCH = ["src/luban/frontend/torch", "src/luban/lang/compat/devices.py", "src/luban/torch"]
collect_ignore = [] if find_spec("torch") else _NEED_TORCH
