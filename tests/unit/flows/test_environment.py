"""What a root must be so that the databases of Prefect and MLflow can lie in it.

Invariants: a path that SQLite or a database's URL cannot name is refused before anything is made,
with what is wrong with it; the longest that is let through works. Libraries are asked to be quiet
before anything imports them. Each library that sends requests asks servers of this machine past
proxies, and others as its user said. A command from a folder that is gone says so.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import urllib.request
from pathlib import Path

import httpx
import pytest
import requests
from botocore.utils import get_environ_proxies

from flows.cli import app as cli
from flows.preparing import prepare
from flows.running import environment
from flows.running.environment import LONGEST, check_home
from genenv_core.errors import ConfigError, StorageError
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.opening import open_store
from tasks.tracking.database import create_database
from tests.examples import some
from tests.mutations import mutation
from tests.pipeline.builders import tiny


def folder_of(length: int, above: Path) -> Path:
    """Return a path of so many bytes."""
    while (left := length - len(os.fsencode(above))) > 0:
        above /= "d" * min(200, left - 1)
    assert len(os.fsencode(above)) == length
    return above


@pytest.mark.slow
def test_the_longest_root_holds_the_databases(tmp_path: Path) -> None:
    root = folder_of(LONGEST, tmp_path)
    check_home(root)
    LocalStore(root)
    create_database(root)
    longer = folder_of(LONGEST + 1, tmp_path)
    deepest = LocalStore(longer).scratch() / "mlflow.db"
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        sqlite3.connect(deepest).execute("CREATE TABLE t (a)")
    with pytest.raises(ConfigError, match=f"{LONGEST + 1} bytes.*choose a shorter --root"):
        check_home(longer)


def test_a_link_to_a_long_path_is_as_long(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder_of(600, tmp_path))
    with pytest.raises(ConfigError, match="600 bytes"):
        check_home(tmp_path / "link")


@pytest.mark.parametrize("name", ["a%20b", "100%", "a?b", "d" * 600])
def test_a_root_that_cannot_be_used_is_not_made(name: str, tmp_path: Path) -> None:
    config = tiny(tmp_path / "/".join([name[:200]] * (1 + len(name) // 200)), run_id="x")
    with pytest.raises(ConfigError, match="choose a"):
        prepare(config)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a b", "a#b", "aé🦆", "a\nb", "a[1]*", "a'b\"c", "a\\b", "a&b;c"])
def test_other_characters_are_fine(name: str, tmp_path: Path) -> None:
    check_home(tmp_path / name)


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="too long: choose a shorter --root"):
        open_store(str(tmp_path / ("d" * 300)))


@mutation(
    "TRL imports MLflow in each training process", "flows/running/environment.py",
    '    "DISABLE_MLFLOW_INTEGRATION": "TRUE",\n', "",
)  # fmt: skip
def test_the_libraries_do_without_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is 2 s of a training process, for callbacks that no update uses."""
    from transformers.integrations.integration_utils import is_mlflow_available

    monkeypatch.setenv("DISABLE_MLFLOW_INTEGRATION", "")  # so that it is as before afterwards
    monkeypatch.delenv("DISABLE_MLFLOW_INTEGRATION")
    assert is_mlflow_available()
    environment.quiet()
    assert not is_mlflow_available()


@mutation(
    "libraries are asked to be quiet after they are imported", "flows/cli/app.py",
    "    quiet()\n", "",
)  # fmt: skip
def test_libraries_are_quiet_before_any_command_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command looks at given models, and so imports transformers, before it prepares Prefect."""
    for name in environment.QUIET:
        monkeypatch.setenv(name, "")  # so that it is as before afterwards
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "info")  # somebody wants to see more
    seen: dict[str, str] = {}

    def command(**_: object) -> None:
        seen.update(os.environ)
        raise SystemExit

    monkeypatch.setattr(cli, "app", command)
    with pytest.raises(SystemExit):
        cli.main()
    assert seen["HF_HUB_DISABLE_PROGRESS_BARS"] == "1"
    assert environment.QUIET.keys() <= seen.keys()
    assert seen["TRANSFORMERS_VERBOSITY"] == "info"


ENVIRONMENT = "flows/running/environment.py"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def given(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Set the variables of proxies to these values alone."""
    for name in (*PROXIES, *map(str.upper, PROXIES)):
        monkeypatch.setenv(name, "")  # so that it is as before afterwards
        monkeypatch.delenv(name)
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def through_proxy(url: str) -> set[str]:
    """Return the libraries that would send a request for this address to a proxy."""
    host = url.partition("//")[2].partition("/")[0]
    with httpx.Client() as client:
        by_httpx = client._transport_for_url(httpx.URL(url)) is not client._transport
    found = {
        "httpx": by_httpx,  # Prefect's client
        "requests": bool(requests.utils.get_environ_proxies(url)),  # MLflow's, and OpenTelemetry's
        "botocore": bool(get_environ_proxies(url)),
        "urllib": not urllib.request.proxy_bypass(host),
    }
    return {name for name, through in found.items() if through}


ALL = {"httpx", "requests", "botocore", "urllib"}


@mutation("only one spelling of NO_PROXY is set", ENVIRONMENT,
          'for name in ("no_proxy", "NO_PROXY")}', 'for name in ("NO_PROXY",)}',
          by="[upper-own-lower]")  # fmt: skip
@mutation("what NO_PROXY has already is lost", ENVIRONMENT,
          "[*listed, *missing]", "missing", by="[lower-own-upper]")  # fmt: skip
@pytest.mark.parametrize(
    "own",
    [{}, {"NO_PROXY": "10.0.0.5,.corp"}, {"no_proxy": "10.0.0.5, .corp"}, {"NO_PROXY": "*"}],
    ids=["none", "own-upper", "own-lower", "everything"],
)
@pytest.mark.parametrize(
    "spelling", some([str.lower, str.upper], [str.lower]), ids=["lower", "upper"]
)
def test_servers_of_this_machine_are_asked_past_proxies(
    spelling, own: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxies = {spelling(name): "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy")}
    given(monkeypatch, **proxies, **own)
    environment.past_proxies()
    environment.past_proxies()  # a child of genenv does it again
    for here in ("http://127.0.0.1:4200/api", "http://localhost:5000/health"):
        assert through_proxy(here) == set(), here
    everywhere = own == {"NO_PROXY": "*"}
    assert through_proxy("http://example.org/") == (set() if everywhere else ALL)
    assert through_proxy("http://10.0.0.5/") == (ALL if not own else set())
    assert through_proxy("http://mlflow.corp/") == (ALL if not own else set())


@mutation("a command leaves the proxies as they are", "flows/cli/app.py",
          "    past_proxies()\n", "")  # fmt: skip
def test_a_command_goes_past_proxies_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, HTTP_PROXY="http://127.0.0.1:9")
    seen: set[str] = {"not asked"}

    def command(**_: object) -> None:
        seen.clear()
        seen.update(through_proxy("http://127.0.0.1:4200/"))
        raise SystemExit

    monkeypatch.setattr(cli, "app", command)
    with pytest.raises(SystemExit):
        cli.main()
    assert seen == set()


@mutation("a working folder that is gone is not noticed", "flows/cli/app.py",
          "    check_working_folder()\n", "")  # fmt: skip
def test_a_working_folder_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "argv", ["genenv", "status"])
    monkeypatch.setattr(os, "_exit", sys.exit)  # where other tests have left threads
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert "the working folder cannot be used" in said and "change into a folder" in said
    assert "no run under" not in said and said.count("\n") == 1
