"""Check that a change of the package is told under changes/.

`check_changes.py [BASE]` looks at what happened since BASE (a commit or branch; by default the last version's
tag, or the beginning of the history): where something under respool/ changed, a fragment must have been added
or changed too. The names and texts of the fragments there are checked in any case.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("added", "changed", "fixed", "removed", "security")
NAME = re.compile(rf"[a-z0-9][a-z0-9-]*\.({'|'.join(KINDS)})\.md")


def git(*arguments: str) -> str:
    """Return what git prints, or nothing where it refuses."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def wrong_fragments() -> list[str]:
    """Return a line for each file under changes/ that is no fragment or says nothing."""
    problems = []
    for path in sorted((ROOT / "changes").iterdir()):
        if path.name in {"README.md", "template.md.jinja"}:
            continue
        if NAME.fullmatch(path.name) is None:
            problems.append(f"changes/{path.name}: should be WORDS.KIND.md, KIND one of {', '.join(KINDS)}")
        elif not path.read_text(encoding="utf-8").strip():
            problems.append(f"changes/{path.name}: is empty")
    return problems


def untold(base: str) -> list[str]:
    """Return a line when the package has changed since `base` and no fragment has."""
    since = f"{base}...HEAD" if base else git("hash-object", "-t", "tree", "/dev/null")
    changed = git("diff", "--name-only", "--diff-filter=AMR", since, *([] if base else ["HEAD"])).splitlines()
    package = [name for name in changed if name.startswith("respool/") and name.endswith(".py")]
    told = [name for name in changed if name.startswith("changes/") and not name.endswith("README.md")]
    if package and not told:
        where = base or "the beginning"
        return [f"{len(package)} files under respool/ changed since {where}, and no fragment tells of it"]
    return []


def main() -> int:
    """Print what is wrong; return 1 when anything is."""
    base = sys.argv[1] if len(sys.argv) > 1 else git("describe", "--tags", "--abbrev=0", "--match", "v*")
    problems = wrong_fragments() + untold(base)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"changes/: all told since {base or 'the beginning'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
