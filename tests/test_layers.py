"""The shape of the source tree: who may import what, what an import may do, and a few rules of the house.

import-linter checks the layers by the import graph; this reads the tree itself, so it also sees imports in
functions and by string, and needs nothing but the standard library.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import respool

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).resolve().parent
PACKAGE = Path(respool.__path__[0])

SOURCES = sorted(PACKAGE.rglob("*.py"))
TEST_SOURCES = sorted(TESTS.rglob("*.py"))

#: What each layer may import from respool besides itself and the core, which everything may import.
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "cuda": set(),
    "curl": set(),
    "buffers": {"cuda"},
    "io": {"curl", "buffers", "cuda"},
    "cli": {"curl", "buffers", "cuda", "io"},
}

#: Third-party packages that each layer may name; for tools of type checkers see TYPING_ONLY.
THIRD_PARTY: dict[str, set[str]] = {
    "core": set(),
    "cuda": {"cuda"},
    "curl": {"idna", "pycurl"},
    "buffers": set(),
    "io": set(),
    "cli": {"rich"},
}
TYPING_ONLY = {"typing_extensions"}

#: `respool bench` measures against what a user would write or use instead, so it may name all of those.
BENCH = PACKAGE / "cli" / "bench"

LONGEST_FILE = 400

#: Tests that may sleep, each with its reason. Races are tested by gates, not by time.
MAY_SLEEP: dict[str, str] = {}


class Import(NamedTuple):
    """One name that a module imports, wherever in the module, and whether only type checkers see it."""

    name: str
    line: int
    for_typing: bool


def layer_of(path: Path) -> str:
    """The layer a source file of the package belongs to: the subpackage's name, or core."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else "core"


def package_of(path: Path) -> str:
    """The dotted name of the package that a source file is in."""
    return ".".join(path.relative_to(PACKAGE.parent).parent.parts)


def imports_of(path: Path) -> Iterator[Import]:
    """Every import of a file: statements anywhere, and calls that import by a constant string."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                typing_lines |= set(range(child.lineno, (child.end_lineno or child.lineno) + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package_of(path).split(".")[: 1 - node.level or None] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("__import__", "import_module")):
            constants = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            names = [value for value in constants if isinstance(value, str)]
        else:
            continue
        for name in names:
            yield Import(name, node.lineno, node.lineno in typing_lines)


def target_layer(name: str) -> str | None:
    """The layer of respool that an imported name belongs to, or None when it is not of respool."""
    parts = name.split(".")
    if parts[0] != "respool":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "core"


def where(path: Path, line: int) -> str:
    """A place in the tree, for messages."""
    return f"{path.relative_to(path.parents[1])}:{line}"


def run(program: str) -> str:
    """Run a program in a fresh interpreter that sees the same package; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
        cwd=PACKAGE.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_belongs_to_a_known_layer() -> None:
    """A new subpackage has to say what it may import before it can exist."""
    assert {layer_of(path) for path in SOURCES} <= set(MAY_IMPORT)


def test_imports_go_downwards() -> None:
    """No layer imports one above or beside it, not even for type checkers."""
    wrong = [
        f"{where(path, found.line)} ({layer}) imports {found.name} ({target})"
        for path in SOURCES
        for layer in [layer_of(path)]
        for found in imports_of(path)
        for target in [target_layer(found.name)]
        if target is not None and target not in {layer, "core"} | MAY_IMPORT[layer]
    ]
    assert wrong == []


def test_third_party_packages_are_named_only_where_they_belong() -> None:
    """The core imports the standard library only; curl alone names pycurl, the cli alone rich."""
    wrong = [
        f"{where(path, found.line)} imports {found.name}"
        for path in SOURCES
        if BENCH not in path.parents
        for found in imports_of(path)
        for top in [found.name.split(".")[0]]
        if top not in sys.stdlib_module_names
        and top not in {"respool"} | THIRD_PARTY[layer_of(path)]
        and not (top in TYPING_ONLY and found.for_typing)
    ]
    assert wrong == []


def test_importing_the_package_loads_the_standard_library_only() -> None:
    """The core brings in no third-party module, and neither asyncio nor logging nor metadata."""
    new = run(
        "import sys; before = set(sys.modules)\nfrom respool import *\nprint(*sorted(set(sys.modules) - before))"
    ).split()
    assert "respool" in new
    tops = {name.split(".")[0] for name in new}
    assert tops - set(sys.stdlib_module_names) == {"respool"}
    assert tops & {"asyncio", "logging", "concurrent", "multiprocessing", "socket"} == set()
    assert "importlib.metadata" not in new
    assert {target_layer(name) for name in new} <= {"core", None}


def test_importing_has_no_side_effect() -> None:
    """`import respool` starts no thread, installs no handler, opens nothing and leaves logging alone."""
    told = run(
        "import os, signal, sys, threading\n"
        "handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}\n"
        "descriptors = os.listdir('/proc/self/fd')\n"
        "hooks = sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook\n"
        "import respool.buffers, respool.cuda, respool.curl, respool.io\n"
        "from respool import *\n"
        "assert threading.active_count() == 1 and len(os.listdir('/proc/self/task')) == 1\n"
        "assert handlers == {number: signal.getsignal(number) for number in signal.valid_signals()}\n"
        "assert len(os.listdir('/proc/self/fd')) == len(descriptors)\n"
        "assert hooks == (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook)\n"
        "logging = sys.modules.get('logging')\n"
        "assert logging is None or not logging.getLogger().handlers\n"
        "assert logging is None or not logging.getLogger('respool').handlers\n"
        "print('quiet')"
    )
    assert told == "quiet\n"


@pytest.mark.parametrize("subpackage", ["buffers", "cuda", "curl", "io", "cli"])
def test_subpackages_import_without_their_packages(subpackage: str) -> None:
    """Each subpackage can be imported on a machine that has none of the optional packages."""
    program = (
        "import sys\n"
        "for name in ('cuda', 'pycurl', 'rich', 'numpy', 'typing_extensions'): sys.modules[name] = None\n"
        f"import respool.{subpackage}\n"
        "print('imported')"
    )
    assert run(program) == "imported\n"


def test_no_file_is_too_long() -> None:
    """A file that grows past the limit owns more than one notion and is to be split."""
    lengths = {
        f"{path.parent.name}/{path.name}": len(path.read_text(encoding="utf-8").splitlines())
        for path in [*SOURCES, *TEST_SOURCES]
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_package_init_files_only_re_export() -> None:
    """An __init__ holds imports, __all__, and the two functions of a lazy package; the rest has files."""
    wrong = []
    for path in SOURCES:
        if path.name != "__init__.py":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if node.name not in {"__getattr__", "__dir__"}:
                    wrong.append(f"{where(path, node.lineno)} defines {node.name}")
            elif isinstance(node, ast.With | ast.While | ast.Try):
                wrong.append(f"{where(path, node.lineno)} does something on import")
    assert wrong == []


def test_no_test_sleeps() -> None:
    """Tests are put in order by gates, events and barriers; a sleep is either too short or too long."""
    naps = {
        f"{path.relative_to(TESTS)}": f"{where(path, node.lineno)}"
        for path in TEST_SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (getattr(node.func, "attr", None) == "sleep" or getattr(node.func, "id", None) == "sleep")
    }
    assert {file: place for file, place in naps.items() if file not in MAY_SLEEP} == {}
    assert set(MAY_SLEEP) <= set(naps), "an exception that is not needed any more"


def test_programs_in_strings_do_not_sleep_either() -> None:
    """What tests run in other interpreters is held to the same rule."""
    naps = [
        where(path, node.lineno)
        for path in TEST_SOURCES
        if path != Path(__file__).resolve()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(r"\bsleep\(", node.value)
    ]
    assert naps == []


def test_what_is_not_measured_or_checked_says_why() -> None:
    """A line left out of coverage, of linting or of type checking carries its reason."""
    rules = {
        r"pragma: no cover(?! - \S)": "pragma: no cover",
        r"# noqa(?!: [A-Z]+\d+)": "a bare noqa",
        r"# type: ignore(?!\[)": "a bare type: ignore",
        r"# pyright: ignore(?!\[)": "a bare pyright: ignore",
    }
    wrong = [
        f"{where(path, number)}: {what}"
        for path in [*SOURCES, *TEST_SOURCES]
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for pattern, what in rules.items()
        if re.search(pattern, line)
    ]
    assert wrong == []


def test_the_rules_see_what_they_forbid(tmp_path: Path) -> None:
    """The reader of imports finds them in functions, in branches for type checkers, and as strings."""
    file = tmp_path / "module.py"
    file.write_text(
        "import os\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from typing_extensions import TypeVar\n"
        "def f():\n"
        "    import pycurl\n"
        "    import_module('rich.table')\n",
        encoding="utf-8",
    )
    assert sorted(imports_of(file), key=lambda found: found.line) == [
        Import("os", 1, for_typing=False),
        Import("typing.TYPE_CHECKING", 2, for_typing=False),
        Import("typing_extensions.TypeVar", 4, for_typing=True),
        Import("pycurl", 6, for_typing=False),
        Import("rich.table", 7, for_typing=False),
    ]
