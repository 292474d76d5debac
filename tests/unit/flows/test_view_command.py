"""`genenv view` on the command line: what it says before it serves, and what it refuses."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from typer.testing import CliRunner

from flows.cli.app import app
from genenv_core.errors import ConfigError
from tests.unit.builders_root import small_root


@pytest.fixture(name="served")
def what_is_served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the sockets that servers were given; none of them serves."""
    found: list[Any] = []

    def run(self: uvicorn.Server, sockets: list[socket.socket]) -> None:
        found.extend(one.getsockname() for one in sockets)
        for one in sockets:
            one.close()

    monkeypatch.setattr(uvicorn.Server, "run", run)
    return found


def said(*arguments: str) -> str:
    """Return what the command prints."""
    done = CliRunner().invoke(app, ["view", *arguments])
    if done.exception:
        raise done.exception
    return done.output


def test_it_prints_its_address_and_listens_here_alone(tmp_path: Path, served: list[Any]):
    small_root(tmp_path / "root")
    out = said("--root", str(tmp_path / "root"), "--port", "0")
    assert served[0][0] == "127.0.0.1"
    assert f"http://127.0.0.1:{served[0][1]}/\n" in out
    assert "token" not in out


def test_where_others_can_reach_it_the_address_holds_a_token(tmp_path: Path, served: list[Any]):
    small_root(tmp_path / "root")
    out = said("--root", str(tmp_path / "root"), "--port", "0", "--host", "0.0.0.0")
    assert served[0][0] == "0.0.0.0"
    assert "/?token=" in out


def test_a_taken_port_a_strange_host_and_a_missing_root_are_said(tmp_path: Path):
    small_root(tmp_path / "root")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        with pytest.raises(ConfigError, match=rf"by pid {os.getpid()} .*: choose another --port"):
            said("--root", str(tmp_path / "root"), "--port", port)
    with pytest.raises(ConfigError, match="choose another --host"):
        said("--root", str(tmp_path / "root"), "--port", "0", "--host", "192.0.2.1")
    with pytest.raises(ConfigError, match="--host is empty"):
        said("--root", str(tmp_path / "root"), "--port", "0", "--host", "")
    with pytest.raises(ConfigError, match=r"there is no run under .*, or name another --root"):
        said("--root", str(tmp_path / "none"))
