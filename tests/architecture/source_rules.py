"""House rules about source text that neither ruff nor import-linter can state.

Each rule takes a source root (the folder that holds `luban/`) and yields one line a violation,
`path:line: what`. The root is an argument so that a test can point a rule at a planted fault.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

Rule = Callable[[Path], Iterator[str]]

MAX_FILE_LINES = 700
VAGUE_NAMES = frozenset({"utils", "util", "common", "helpers", "helper", "manager", "base", "misc"})
ENVIRONMENT_READER = "core/settings.py"
LLVM_OWNER = "native"
REASON = re.compile(r"#\s*noqa:\s*PLC0415\s*[-:,(]+\s*\w{3,}.*\s\w+")


@cache
def _modules(root: Path) -> tuple[tuple[Path, str, ast.Module], ...]:
    """Every module: its path under `luban/`, its text, its tree. Read once for all rules."""
    package = root / "luban"
    texts = [(path, path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))]
    return tuple((path.relative_to(package), text, ast.parse(text)) for path, text in texts)


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything imported at or below `tree`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in names)


def llvmlite_stays_in_native(root: Path) -> Iterator[str]:
    """Only native/ imports what is in llvmlite: the rest of the compiler hands it LLVM text.

    The bare package, which loads no library, may be asked for its version.
    """
    for path, _, tree in _modules(root):
        if path.parts[0] == LLVM_OWNER:
            continue
        for line, name in _imports(tree):
            if name.startswith("llvmlite."):
                yield f"{path}:{line}: imports {name}; only {LLVM_OWNER}/ may"


def environment_is_read_in_settings(root: Path) -> Iterator[str]:
    """Only core/settings.py reads the environment, so that every setting is listed in one table."""
    reads = {"environ", "environb", "getenv", "getenvb"}
    for path, _, tree in _modules(root):
        if path.as_posix() == ENVIRONMENT_READER:
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in reads:
                    yield f"{path}:{node.lineno}: reads os.{name}; add a setting instead"
        for line, name in _imports(tree):
            if name in {f"os.{read}" for read in reads}:
                yield f"{path}:{line}: imports {name}; add a setting instead"


def imports_in_functions_give_a_reason(root: Path) -> Iterator[str]:
    """Outside cli/, an import inside a function says why on its line: `# noqa: PLC0415 - why`."""
    for path, text, tree in _modules(root):
        if path.parts[0] == "cli":
            continue
        lines = text.splitlines()
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for line in sorted({line for line, _ in _imports(function)}):
                if not REASON.search(lines[line - 1]):
                    yield f"{path}:{line}: import inside {function.name}() without a reason"


def files_stay_short(root: Path) -> Iterator[str]:
    """No file holds a second idea: past 500 lines ask, past 700 split."""
    for path, text, _ in _modules(root):
        if (count := text.count("\n")) > MAX_FILE_LINES:
            yield f"{path}:{count}: more than {MAX_FILE_LINES} lines; which second idea moved in?"


def names_say_something(root: Path) -> Iterator[str]:
    """A module or folder is named after its one idea."""
    for path, _, _ in _modules(root):
        named = path.parent.name if path.name == "__init__.py" else path.stem
        if named in VAGUE_NAMES:
            yield f"{path}:1: {named!r} does not say what is inside"


def folders_are_packages(root: Path) -> Iterator[str]:
    """Every folder with modules has an __init__.py: the layer check does not see it without."""
    package = root / "luban"
    for folder in sorted({path.parent for path in package.rglob("*.py")}):
        if not (folder / "__init__.py").is_file():
            yield f"{folder.relative_to(package)}:1: has modules but no __init__.py"


RULES: tuple[Rule, ...] = (
    llvmlite_stays_in_native,
    environment_is_read_in_settings,
    imports_in_functions_give_a_reason,
    files_stay_short,
    names_say_something,
    folders_are_packages,
)
