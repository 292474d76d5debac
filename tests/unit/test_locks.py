"""The lock files: what is installed is what they say, to the byte.

Invariants: every requirement is pinned and has hashes; the user's lock has what pyproject.toml
names and no developer's tool; the developers' lock and that of the spans agree with it; both
builds of torch are of the version that pyproject.toml pins, need nothing that no lock has, and
agree with the user's lock; where a build cannot be had, `make` says what to do.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
USER, DEV = "requirements.lock", "requirements-dev.lock"
OTEL, INSPECT = "infra/otel.lock", "infra/inspect.lock"
CPU, CUDA = "infra/torch-cpu.lock", "infra/torch-cuda.lock"
PLATFORMS: list[dict[str, str]] = [
    {"python_version": version, "python_full_version": f"{version}.9", "sys_platform": system}
    for version in ("3.11", "3.12", "3.13")
    for system in ("linux", "darwin")
]


def blocks(name: str) -> list[tuple[Requirement, list[str]]]:
    """Return the requirements of a lock, each with its hashes."""
    text = re.sub(r"^#.*\n", "", (REPOSITORY / name).read_text(encoding="utf-8"), flags=re.M)
    found: list[tuple[Requirement, list[str]]] = []
    for line in text.replace("\\\n", " ").splitlines():
        pin, *hashes = line.split("--hash=")
        found.append((Requirement(pin.strip()), [one.strip() for one in hashes]))
    return found


def pins(name: str, platform: dict[str, str]) -> dict[str, str]:
    """Return the version of each package that a lock has for a platform."""
    found: dict[str, str] = {}
    for requirement, _ in blocks(name):
        if requirement.marker is None or requirement.marker.evaluate({**platform}):
            package = canonicalize_name(requirement.name)
            assert package not in found, f"{name} pins {package} twice"
            found[package] = str(requirement.specifier).removeprefix("==")
    return found


def project() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("name", [USER, DEV, CPU, CUDA, OTEL, INSPECT])
def test_every_requirement_is_pinned_and_hashed(name: str) -> None:
    found = blocks(name)
    assert found
    for requirement, hashes in found:
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), requirement
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes)


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda p: " ".join(p.values()))
def test_the_locks_have_what_the_project_names_and_agree(platform: dict[str, str]) -> None:
    user, dev = pins(USER, platform), pins(DEV, platform)
    assert user.items() <= dev.items()
    otel = pins(OTEL, platform)
    assert all(user.get(name, version) == version for name, version in otel.items())
    extras = project()["optional-dependencies"]
    for lock, wanted in (
        (user, [*project()["dependencies"], *extras["kubernetes"]]),
        (dev, extras["dev"]),
        (otel, extras["otel"]),
    ):
        for requirement in map(Requirement, wanted):
            name = canonicalize_name(requirement.name)
            if name != "torch":
                assert requirement.specifier.contains(lock[name]), requirement
    tools = {canonicalize_name(Requirement(one).name) for one in extras["dev"]}
    assert tools & set(user) == {"setuptools"}  # torch needs it
    heavy = {"triton"} | {name for name in user if name.startswith(("nvidia", "cuda"))}
    assert not heavy & set(user)


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda p: " ".join(p.values()))
def test_both_builds_of_torch_are_of_the_pinned_version(platform: dict[str, str]) -> None:
    wanted = next(
        str(one.specifier).removeprefix("==")
        for one in map(Requirement, project()["dependencies"])
        if one.name == "torch"
    )
    local = "+cpu" if platform["sys_platform"] == "linux" else ""
    user = pins(USER, platform)
    assert pins(CPU, platform) == {"torch": f"{wanted}{local}"}
    cuda = pins(CUDA, platform)
    assert cuda["torch"] == wanted
    assert all(user.get(name, version) == version for name, version in cuda.items())


def test_make_says_what_to_do_where_the_cpu_build_cannot_be_had(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    given = ["TORCH=cpu", "PIP=false", f"VENV={tmp_path}/venv", f"PYTHON={sys.executable}"]
    done = subprocess.run(
        ["make", "install", *given], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "make install TORCH=cuda" in done.stdout
    assert not (tmp_path / "venv" / ".installed").exists()


def test_torch_needs_nothing_that_no_lock_has() -> None:
    have = pins(USER, {**PLATFORMS[0], "extra": ""})
    for requirement in map(Requirement, requires("torch") or []):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            name = canonicalize_name(requirement.name)
            assert name in have or name in pins(CUDA, PLATFORMS[0]), requirement
