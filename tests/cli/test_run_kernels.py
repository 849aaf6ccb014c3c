"""`luban run-kernels`: scripts with kernels, arguments, exit codes, the checked mode."""

import importlib.util
from pathlib import Path

import pytest

from luban.cli.main import main

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is not None, reason="Triton itself is installed here"
)

SCRIPT = """
import sys
import numpy as np
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 2 * tl.load(x_ptr + offsets))

x = np.arange(int(sys.argv[1]), dtype=np.float32)
double[(1,)](x, len(x), BLOCK=8)
print(x.sum(), __name__)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def test_the_script_gets_its_arguments_and_gives_its_code(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run-kernels", script, "8", "3"]) == 3
    assert capsys.readouterr().out == "56.0 __main__\n"


def test_the_checked_mode_finds_what_is_out_of_bounds(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run-kernels", "--check", script, "7", "0"]) == 2
    assert "element 7 of %x_ptr, expected 0" in capsys.readouterr().err
    assert main(["run-kernels", "--check", script, "8", "0"]) == 0


def test_a_missing_script_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run-kernels", "nowhere.py"]) == 2
    assert "there is no script nowhere.py" in capsys.readouterr().err
