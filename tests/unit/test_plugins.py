"""Names of domains and benchmarks, and the entry points that they come from.

Invariants: what is installed names what `pyproject.toml` names; genenv's own win over others of
their name; one name of two packages is refused unless both mean one thing; an installation without
genenv's entry points says what to do; nothing is loaded to list names, and each group is read once.
"""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import EntryPoint
from operator import attrgetter
from pathlib import Path
from typing import get_type_hints

import pytest

from genenv_core import plugins
from genenv_core.benchmarks.registry import get_benchmark, known_benchmarks
from genenv_core.domains.kit.served.served_domain import ServedDomain
from genenv_core.domains.registry import OF_SERVERS, get_domain, is_built_in, known_domains
from genenv_core.errors import ConfigError
from genenv_core.plugins import BENCHMARKS, DOMAINS, known_names, own_points, point_of
from tests.mutations import mutation
from tests.unit.plugged import write_package

PLUGINS = "genenv_core/plugins.py"
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("group", [DOMAINS, BENCHMARKS])
def test_what_is_installed_is_what_the_project_names(group: str) -> None:
    """A failure says that the installed metadata is old: `make install` writes it anew."""
    named = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"][group]
    assert {name: point.value for name, point in own_points(group).items()} == named
    for point in own_points(group).values():
        assert point.load() is not None


@mutation(
    "a server's environment counts as genenv's own", "genenv_core/domains/registry.py",
    " and one not in OF_SERVERS", "",
)  # fmt: skip
@pytest.mark.parametrize("point", own_points(DOMAINS).values(), ids=attrgetter("name"))
def test_whose_environment_a_domain_plays(point: EntryPoint) -> None:
    """That of somebody's server is not genenv's own: replays ask for it, and runs try it first."""
    makes = get_type_hints(point.load()).get("return")
    served = isinstance(makes, type) and issubclass(makes, ServedDomain)
    assert (point.name in OF_SERVERS) == served
    assert is_built_in(point.name) == (not served)


@mutation(
    "another package hides a benchmark of genenv", PLUGINS,
    "    own = own_points(group).get(name)\n", "    own = None\n",
)  # fmt: skip
def test_an_own_one_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {BENCHMARKS: {"bfcl": "nowhere:BENCHMARK"}, DOMAINS: {"desk": "nowhere:Desk"}}
    monkeypatch.syspath_prepend(write_package(tmp_path, points))
    assert get_benchmark("bfcl").name == "bfcl" and get_domain("desk").name == "desk"
    assert is_built_in("desk") and known_benchmarks().count("bfcl") == 1


@mutation(
    "of two packages with one name the first is taken", PLUGINS,
    "if len({point.value for point in points}) > 1:", "if len(points) < 1:",
)  # fmt: skip
def test_a_name_of_two_packages_is_refused_unless_both_mean_one_thing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, place in (("one", "one:it"), ("two", "two:it")):
        points = {DOMAINS: {"mine": place, "same": "both:it"}}
        monkeypatch.syspath_prepend(write_package(tmp_path / name, points, name=name))
    with pytest.raises(ConfigError, match=r"domain\.name 'mine' .*several packages \(one:it, two"):
        get_domain("mine")
    assert point_of(DOMAINS, "same", "domain.name").value == "both:it"


@mutation(
    "an old installation takes another package's benchmark for bfcl", PLUGINS,
    "    check_installed(group)\n    points", "    points",
)  # fmt: skip
def test_an_installation_from_before_the_entry_points_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_package(
        tmp_path, {"console_scripts": {"genenv": "flows.cli.app:main"}}, name="genenv"
    )
    monkeypatch.syspath_prepend(old)
    points = {BENCHMARKS: {"bfcl": "nowhere:BENCHMARK"}}
    monkeypatch.syspath_prepend(write_package(tmp_path / "other", points))
    for ask in (lambda: get_benchmark("bfcl"), lambda: get_domain("desk"), known_benchmarks):
        with pytest.raises(ConfigError, match=r"install it again, by `make install` or `pip"):
            ask()


def test_an_unknown_name_says_which_there_are_and_where_others_come_from() -> None:
    for ask, words in (
        (get_benchmark, r"benchmark 'bfc' is unknown; known: alfworld, .*in genenv\.benchmarks\)"),
        (
            get_domain,
            r"domain\.name 'bfc' is unknown; .*; a class of your own .*in genenv\.domains\)",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            ask("bfc")


@mutation("every look at a name reads all packages", PLUGINS, "@cache\ndef _all", "def _all")
def test_a_group_is_read_once_and_nothing_is_loaded_for_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(write_package(tmp_path, {DOMAINS: {"far": "far_away:Domain"}}))
    read: list[str] = []
    entry_points = plugins.entry_points

    def counted(*, group: str) -> object:
        read.append(group)
        return entry_points(group=group)

    monkeypatch.setattr(plugins, "entry_points", counted)
    for _ in range(3):
        assert "far" in known_domains() and "far" not in known_names(BENCHMARKS)
    assert sorted(read) == [BENCHMARKS, DOMAINS]
    assert "far_away" not in sys.modules


@mutation(
    "a module that ends the process ends genenv without a word",
    "genenv_core/machine/plugin_failures.py",
    "except (Exception, SystemExit) as error:", "except Exception as error:",
)  # fmt: skip
def test_a_module_that_ends_the_process_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaving.py").write_text("raise SystemExit(0)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"'leaving\.py:Mine': .*failed with SystemExit: 0"):
        get_domain("leaving.py:Mine")
