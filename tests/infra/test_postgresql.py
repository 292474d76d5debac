"""`genenv up` with Prefect's database in a real PostgreSQL.

Invariants: a run works as on SQLite; the password is in no log, no note and no command line; a
database of a newer Prefect is refused in one line. Skipped where PostgreSQL is not installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.infra.servers import Up, free_port
from tests.waiting import BOUND_S, until

PASSWORD = "not-to-be-seen"
USER = "postgres" if os.getuid() == 0 else None  # PostgreSQL does not run as root

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not shutil.which("initdb"), reason="no PostgreSQL here"),
]


@pytest.fixture
def url() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    (folder / "password").write_text(PASSWORD)
    if USER:
        for path in (folder, folder / "password"):
            shutil.chown(path, USER)
    data, port = folder / "data", free_port()
    make = ["initdb", "-D", str(data), "-U", "genenv", "--auth=scram-sha-256"]
    make += ["--pwfile", str(folder / "password")]
    subprocess.run(make, user=USER, check=True, capture_output=True, cwd=folder)
    serve = ["postgres", "-D", str(data), "-p", str(port), "-k", str(folder)]
    server = subprocess.Popen(
        [*serve, "-c", "listen_addresses=127.0.0.1"], user=USER, cwd=folder,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def ready() -> bool:
        assert server.poll() is None
        asked = ["pg_isready", "-h", "127.0.0.1", "-p", str(port)]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    until(ready)
    yield f"postgresql://genenv:{PASSWORD}@127.0.0.1:{port}/postgres"
    server.terminate()
    server.wait(BOUND_S)
    shutil.rmtree(folder, ignore_errors=True)


def sql(url: str, text: str) -> str:
    done = subprocess.run(["psql", url, "-tAc", text], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_run_with_postgresql(tmp_path: Path, url: str):
    up = Up(tmp_path / "root", variables={"GENENV_DATABASE_URL": url}).wait()
    try:
        for process in psutil.Process(up.process.pid).children(recursive=True):
            assert PASSWORD not in " ".join(process.cmdline())
        run = up.start("coevolution", preset="tiny", epochs=1, tracking={"enabled": False})
        assert up.until(run)["state"]["type"] == "COMPLETED"
    finally:
        assert up.stop() == 0
    assert sql(url, "SELECT count(*) FROM flow_run") == "2"
    assert not (tmp_path / "root" / "prefect" / "prefect.db").exists()
    for path in (tmp_path / "root" / "up").rglob("*"):
        assert path.is_dir() or PASSWORD not in path.read_text(errors="replace"), path
    sql(url, "UPDATE alembic_version SET version_num = 'ffffffffffff'")
    newer = Up(tmp_path / "root", variables={"GENENV_DATABASE_URL": url})
    assert newer.process.wait(BOUND_S) == 2
    assert "ffffffffffff" in newer.output and "newer version" in newer.output
    assert PASSWORD not in up.output + newer.output
