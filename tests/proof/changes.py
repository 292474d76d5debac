"""What changed since the commit on which every test passed."""

from __future__ import annotations

import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PROVEN = "tests/proof/PROVEN"
"""The tracked file with that commit; `make test-all` writes it."""


def changed(root: Path = REPOSITORY) -> list[str] | None:
    """Return the paths that differ from the proven commit, None where that cannot be said.

    Counts what is committed, what is not yet, and new files that git does not ignore; of a renamed
    file both names.
    """
    file = root / PROVEN
    commit = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
    if not commit or _git(root, "cat-file", "-e", f"{commit}^{{commit}}") is None:
        return None
    tracked = _git(root, "diff", "--name-only", "--no-renames", "-z", commit)
    new = _git(root, "ls-files", "-z", "--others", "--exclude-standard")
    if tracked is None or new is None:
        return None
    return sorted({path for path in (tracked + new).split("\0") if path})


def present(root: Path = REPOSITORY) -> list[str]:
    """Return the files of the working tree that git tracks or would track.

    Raises RuntimeError outside of a repository.
    """
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        raise RuntimeError(f"{root} is no repository of git")
    return sorted({path for path in listed.split("\0") if path and (root / path).is_file()})


def clean(root: Path = REPOSITORY) -> bool:
    """Return whether the working tree is the one of the commit, new files included."""
    return _git(root, "status", "--porcelain") == ""


def head(root: Path = REPOSITORY, what: str = "HEAD") -> str:
    """Return the commit, or with `HEAD^{tree}` its tree; '' outside of a repository."""
    return (_git(root, "rev-parse", what) or "").strip()


def _git(root: Path, *arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None
