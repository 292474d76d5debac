"""What changed since the commit on which a suite passed, for each suite."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.proof.table import ALL, asked

REPOSITORY = Path(__file__).parents[2]
PROVEN = "tests/proof/PROVEN"
"""The tracked file with a line for each suite: its name, and the commit on which it last passed."""

PASSED = ".ci/out/proven"
"""The file of the same lines where a suite that passed is noted at once."""


def commits(file: Path) -> dict[str, str]:
    """Return the commit of each suite that a file of such lines names; none where it is missing.

    Raises ValueError, with the line, where one is not a name and a commit.
    """
    found: dict[str, str] = {}
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    for number, line in enumerate(lines, start=1):
        match line.split():
            case [name, commit]:
                found[name] = commit
            case _:
                raise ValueError(f"{file}, line {number}: not a suite and its commit: {line!r}")
    return found


def note(file: Path, passed: Mapping[str, str]) -> None:
    """Write the commits on which suites passed into a file, '' for one that has not passed.

    Suites that the table no longer has leave the file.
    """
    lines = {**commits(file), **passed}
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{name} {lines[name]}\n" for name in ALL if lines.get(name))
    file.write_text(text, encoding="utf-8")


def renew(root: Path = REPOSITORY) -> dict[str, str]:
    """Take into PROVEN what is in PASSED of commits that HEAD has, and return that."""
    passed = {
        suite: commit
        for suite, commit in commits(root / PASSED).items()
        if _git(root, "merge-base", "--is-ancestor", commit, "HEAD") is not None
    }
    note(root / PROVEN, passed)
    return passed


def asking(root: Path = REPOSITORY) -> dict[str, tuple[str, list[str]]]:
    """Return for each suite the commit on which it last passed, '' for none, and who asks for it.

    A suite without a commit that is here is asked for by PROVEN.
    """
    proven = commits(root / PROVEN)
    paths = {commit: changed(commit, root) for commit in {*proven.values(), ""}}
    found: dict[str, tuple[str, list[str]]] = {}
    for name in ALL:
        commit = proven.get(name, "")
        since = paths[commit]
        found[name] = (commit, [PROVEN] if since is None else asked(since).get(name, []))
    return found


def changed(commit: str, root: Path = REPOSITORY) -> list[str] | None:
    """Return the paths that differ from a commit, None where that cannot be said.

    Counts what is committed, what is not yet, and new files that git does not ignore; of a renamed
    file both names.
    """
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
