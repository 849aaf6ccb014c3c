"""Every row of the list of public reports has a test, here or elsewhere, or a stated reason."""

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent

# The rows of classes A and B about ONNX, fusion, numerics, quantisation, shapes and run time.
_NUMBERS = {
    "G": [1, 2, 4, 5, 7, 8, 10, 11, 13],
    "O": [1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19, 21, 22, 24, 25],
    "N": [1, 2, 4, 5, 7, 8, 10, 11, 13, 14],
    "Q": [2, 3, 5, 6, 8],
    "S": [1, 3, 4, 6, 7, 9, 10],
    "R": [1, 2, 4, 5, 7, 8, 10, 13],
}
ROWS = [f"{section}{number}" for section, numbers in _NUMBERS.items() for number in numbers]

# Tests of a row that stand next to what they test.
ELSEWHERE = {
    "Q8": [
        "profiler/test_layers.py::test_each_layer_has_two_times_and_an_error",
        "profiler/test_layers.py::test_verdicts",
    ],
    "R2": ["native/test_threads.py::test_quota_of_cgroup_version_2_and_its_parents"],
    "R4": ["engine/test_session.py::test_a_gpu_with_the_cpu_behind_it_is_said_to_be_unused"],
    "R5": ["engine/test_artifact.py::test_external_data_is_mapped_and_watched"],
    "R7": ["engine/test_artifact.py::test_a_process_that_loads_from_the_cache_loads_no_compiler"],
    "R13": ["frontend/onnx/test_importer.py::test_everything_unsupported_is_listed_at_once"],
}

# What of a row is not held, and why.
OPEN = {
    "R5": "loading is tested; quantising and saving are not written",
}


def found_rows() -> set[str]:
    """Rows that a test here is named for, or a case here carries."""
    found: set[str] = set()
    for path in HERE.glob("test_*_cases.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                match = re.match(r"test_([a-z]\d+)_", node.name)
                found |= {match[1].upper()} if match else set()
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "Case",
                "quantise_case",
            ):
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    found.add(str(first.value))
    return found


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_a_test(row: str) -> None:
    assert row in found_rows() or row in ELSEWHERE


def test_no_row_is_listed_twice_or_unknown() -> None:
    found = found_rows()
    assert len(set(ROWS)) == len(ROWS)
    assert found <= set(ROWS)
    assert set(ELSEWHERE) <= set(ROWS)
    assert set(OPEN) <= set(ROWS)


def test_tests_elsewhere_exist() -> None:
    for places in ELSEWHERE.values():
        for place in places:
            file, name = place.split("::")
            tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
            assert name in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}, place
