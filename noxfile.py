"""What CI checks besides the plain test run; `nox --list` names the sessions, `nox -s lint types` runs some.

Each session has a virtual environment of its own. `.ci/run` calls all of them.
"""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
PYTHONS = ["3.11", "3.12", "3.13"]

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["lint", "types", "imports", "changes", "docs", "coverage", "wheel"]


def group(*names: str) -> list[str]:
    """Return the requirements of these dependency groups of pyproject.toml."""
    return [requirement for name in names for requirement in nox.project.dependency_groups(PROJECT, name)]


@nox.session
def lint(session: nox.Session) -> None:
    """Check with all rules of ruff, and its formatting."""
    session.install(*group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check the package and the typing test by mypy --strict for each Python and by basedpyright, and the manual's code."""
    session.install(*group("types", "test"), "--editable", ".[all]")
    for version in PYTHONS:
        session.run("mypy", "--python-version", version)
    # Named, since basedpyright prefers a `.venv` beside pyproject.toml, and the one of scripts/test has no stubs.
    session.run("basedpyright", "--pythonpath", str(Path(session.bin) / "python"))
    session.run("python", "-m", "pytest", "tests/test_manual_types.py")


@nox.session
def imports(session: nox.Session) -> None:
    """Check the import contract, and print what `import respool` costs."""
    session.install(*group("lint"), "--editable", ".[all]")
    session.run("lint-imports")
    session.run("python", "scripts/import_time.py")


@nox.session
def changes(session: nox.Session) -> None:
    """Check that changes of the package are told under changes/, and that they make a changelog."""
    session.install(*group("changelog"))
    session.run("python", "scripts/check_changes.py", *session.posargs)
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the manual with warnings as errors."""
    session.install(*group("docs", "test"), "--editable", ".[all]")
    out = ROOT / "docs" / "_build"
    shutil.rmtree(out, ignore_errors=True)
    session.run("sphinx-build", "--fail-on-warning", "--keep-going", "--quiet", "docs", str(out / "html"))
    session.run("python", "-m", "pytest", "tests/test_manual_api.py")


@nox.session(python=PYTHONS[0])
def coverage(session: nox.Session) -> None:
    """Measure branch coverage of the core by its own tests, with the gate of pyproject.toml."""
    session.install(*group("test", "coverage"), "--editable", ".[all]")
    session.run("coverage", "erase")
    # A trace function slows the core tenfold (the hang timeout is about hangs, not about that), and it adds places
    # where an interrupt can strike: the slow tests, most of which visit those places or storm them, are measured by no
    # tracer.
    left_out = [f"--ignore=tests/core/{name}" for name in ("test_interrupts.py", "test_interrupt_storms.py")]
    pytest = [
        "-m",
        "pytest",
        "-m",
        "not slow",
        "--timeout=300",
        "--tb=native",
        "--numprocesses=auto",
        "tests/core",
        "tests/contract",
        *left_out,
    ]
    session.run("coverage", "run", *pytest, *session.posargs)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")


@nox.session(python=PYTHONS[0])
def mutants(session: nox.Session) -> None:
    """Break the accounting in one place after the other: its model test must notice each. Takes half an hour; not in CI."""
    session.install(*group("test"), "--editable", ".")
    session.run("python", "scripts/mutants", *session.posargs)


@nox.session(python=PYTHONS)
def storm(session: nox.Session) -> None:
    """Storm a pool with more than 50,000 interrupts, all of whose uses go on meanwhile; CI's own storms are smaller."""
    session.install(*group("test"), "--editable", ".[all]")
    files = ["test_stress.py", "test_interrupt_storms.py", "test_fork_in_handlers.py"]
    storms = [*(f"tests/core/{file}" for file in files), "--timeout=3600"]
    session.run("python", "-m", "pytest", *storms, *session.posargs, env={"RESPOOL_STORM": "13000"})


@nox.session(python=False)
def free_threaded(session: nox.Session) -> None:
    """Run the tests that need no extras on a CPython without the interpreter lock, which scripts/free-threaded builds."""
    script = str(ROOT / "scripts" / "free-threaded")
    found = subprocess.run([script], check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603 - the project's own
    if found.returncode:
        session.error("there is no CPython without the interpreter lock, and none can be built here")
    # nox would want to know the interpreter before it has been built, so this session makes its environment itself.
    env = Path(session.create_tmp()) / "env"
    session.run(found.stdout.strip(), "-m", "venv", "--clear", str(env), external=True)
    python = str(env / "bin" / "python")
    packages = [*group("free-threaded"), "--editable", "."]
    session.run(python, "-m", "pip", "install", "--quiet", *packages, external=True)
    # Without the variable an extension that isn't made for it would bring the lock back.
    without = {"PYTHON_GIL": "0", "RESPOOL_EXPECT_FREE_THREADED": "1"}
    asked = "import sys, respool; sys.exit(sys._is_gil_enabled())"
    session.run(python, "-c", asked, external=True, env=without)
    arguments = session.posargs or ["--numprocesses=auto", "tests/core", "tests/buffers"]
    session.run(python, "-m", "pytest", *arguments, external=True, env=without)


@nox.session(python=PYTHONS)
def wheel(session: nox.Session) -> None:
    """Run the whole suite on the built wheel, in a folder where the sources cannot be imported."""
    session.install(*group("test", "build"))
    dist = Path(session.create_tmp()) / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    # `build` makes the sdist and then the wheel out of the sdist.
    session.run("python", "-m", "build", "--outdir", str(dist), ".", silent=True)
    (built,) = dist.glob("*.whl")
    _check_contents(session, built)
    session.install(f"{built}[all]")

    elsewhere = dist.parent / "checkout-without-sources"
    shutil.rmtree(elsewhere, ignore_errors=True)
    for name in _tracked():
        if not name.startswith("respool/"):
            target = elsewhere / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    session.chdir(elsewhere)
    arguments = session.posargs or ["--numprocesses=auto"]
    session.run("python", "-m", "pytest", *arguments, env={"RESPOOL_EXPECT_INSTALLED": "1"})


def _tracked() -> list[str]:
    """Return the files of the checkout that git knows and that are there."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True
    ).stdout.decode()
    return [name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def _check_contents(session: nox.Session, built: Path) -> None:
    """Fail unless the wheel holds every source file and the typing marker, and nothing else."""
    inside = {name for name in zipfile.ZipFile(built).namelist() if ".dist-info/" not in name}
    sources = {name for name in _tracked() if name.startswith("respool/")}
    if inside != sources:
        session.error(f"wheel and sources differ in {sorted(inside ^ sources)}")
