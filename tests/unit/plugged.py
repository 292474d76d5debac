"""Entry points for tests: of a package that is nothing but its metadata, and of genenv itself."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from genenv_core.config.schema import RunConfig
from genenv_core.domains.protocol import Domain
from genenv_core.domains.registry import get_domain
from genenv_core.plugins import DOMAINS, own_points


def write_package(
    folder: Path, points: Mapping[str, Mapping[str, str]], *, name: str = "example"
) -> Path:
    """Write the metadata of a package, group -> name -> value; returns the folder for sys.path."""
    package = folder / f"{name}-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, values in points.items()
        for line in (f"[{group}]", *(f"{one} = {value}" for one, value in values.items()))
    ]
    (package / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def domain_of(config: RunConfig) -> Domain:
    """Return the domain of a configuration."""
    return get_domain(config.domain.name, config.domain.options)


def add_own_domain(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Register a domain as genenv registers its own."""
    point = EntryPoint(name, value, DOMAINS)
    monkeypatch.setitem(own_points(DOMAINS), name, point)  # type: ignore[arg-type]
