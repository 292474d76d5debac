"""Runs many queries, each in a fork that confines itself as the sandbox's process does.

One interpreter imports once and starts an empty DuckDB, which has no threads yet; a fork for each
query changes user, drops its rights and answers. `together`, one fork answers all, as the process
of a session does. Layers can be left out, to see what the others stop. Standard input: JSON;
standard output: JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from genenv_core.storage.sql import duck, sandbox_child
from genenv_core.storage.sql.frames import read_frame, write_frame

NOBODY = 65534

LAYERS: dict[str, tuple[ModuleType, str, Callable[..., Any]]] = {
    "tree": (sandbox_child, "admit", lambda con, sql: None),
    "settings": (duck, "_lock", lambda con, files: None),
    "kernel": (sandbox_child, "confine", lambda files, **limits: False),
}
"""By name of a layer: the function that makes it up, and what stands for it when it is off."""


def fingerprint(area: Path) -> dict[str, str]:
    """Return what every file below a folder is: whoever writes to it gives it another ctime."""
    found: dict[str, str] = {}
    for path in sorted(area.rglob("*")):
        at = path.lstat()
        text = f"{at.st_ino} {at.st_mode} {at.st_size} {at.st_mtime_ns} {at.st_ctime_ns} "
        found[str(path)] = text + (os.readlink(path) if path.is_symlink() else "")
    return found


def leave_out(layers: list[str]) -> None:
    """Turn off layers of this process's confinement, by their names in LAYERS."""
    unknown = set(layers) - LAYERS.keys()
    assert not unknown, f"no layers: {unknown}"
    for module, name, without in map(LAYERS.__getitem__, layers):
        getattr(module, name)  # what is not there cannot be turned off
        setattr(module, name, without)


def answer(body: bytes, uid: int, layers: list[str], area: Path, timeout_s: float) -> Any:
    """Run a request in a fork; returns its status, output, errors and seconds."""
    out_r, out_w = os.pipe()
    err_r, err_w = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(out_w, 1)
        os.dup2(err_w, 2)
        os.close(out_r)
        os.close(err_r)
        with _become(uid, layers, area):
            os._exit(sandbox_child.serve(body, os.fdopen(1, "wb", closefd=False)))
    os.close(out_w)
    os.close(err_w)
    started = time.monotonic()
    texts = {out_r: b"", err_r: b""}
    for handle, data in _read([out_r, err_r], started + timeout_s):
        texts[handle] += data
    late = time.monotonic() - started > timeout_s
    if late:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(out_r)
    os.close(err_r)
    return {
        "status": status,
        "late": late,
        "seconds": time.monotonic() - started,
        "out": texts[out_r].decode("latin-1"),
        "err": texts[err_r].decode("latin-1"),
    }


def answers_together(
    opening: bytes, queries: list[str], uid: int, layers: list[str], area: Path
) -> Iterator[Any]:
    """Yield the answer to each query from one fork, in the form of `answer`."""
    in_r, in_w = os.pipe()
    out_r, out_w = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(in_w)
        os.close(out_r)
        with _become(uid, layers, area), os.fdopen(in_r, "rb") as questions:
            os._exit(sandbox_child.serve_all(questions, os.fdopen(out_w, "wb")))
    os.close(in_r)
    os.close(out_w)
    with os.fdopen(in_w, "wb") as questions, os.fdopen(out_r, "rb") as out:
        write_frame(questions, opening)
        assert read_frame(out) == b'{"truncated": false}'
        for query in queries:
            write_frame(questions, json.dumps({"sql": query, "rows": None}).encode())
            said, rows = read_frame(out), read_frame(out)
            assert said is not None and rows is not None, f"the process ended: {query}"
            status = 0 if "truncated" in json.loads(said) else 3
            yield {"status": status, "out": rows.decode("latin-1"), "err": said.decode()}
    os.waitpid(child, 0)


@contextlib.contextmanager
def _become(uid: int, layers: list[str], area: Path) -> Iterator[None]:
    """Be a process of this user without these layers, which ends with the block."""
    try:
        os.chdir(area / "cwd")
        if uid != os.geteuid():
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        leave_out(layers)
        yield
    finally:
        os._exit(70)


def _read(handles: list[int], deadline: float) -> Iterator[tuple[int, bytes]]:
    left = list(handles)
    while left and (wait := deadline - time.monotonic()) > 0:
        for handle in select.select(left, [], [], wait)[0]:
            data = os.read(handle, 1 << 20)
            if data:
                yield handle, data
            else:
                left.remove(handle)


def main() -> None:
    """Answer every query of the request."""
    asked = json.load(sys.stdin)
    area, uid, layers, opening = (asked[name] for name in ("area", "uid", "layers", "body"))
    area = Path(area)
    threads = os.listdir("/proc/self/task")
    started = duck.start(f"{opening['memory_bytes']}B", threads=1)
    assert os.listdir("/proc/self/task") == threads, "a fork would lack DuckDB's threads"
    sandbox_child.start = lambda memory_limit, *, threads=None: started
    queries: list[str] = asked["queries"]
    if asked["together"]:
        answers = answers_together(json.dumps(opening).encode(), queries, uid, layers, area)
    else:
        bodies = (json.dumps(opening | {"sql": query}).encode() for query in queries)
        answers = (answer(body, uid, layers, area, asked["timeout_s"]) for body in bodies)
    # Symlinked and empty folders included; the fork runs as the user who owns everything here.
    before = fingerprint(area)
    results: list[Any] = []
    for result in answers:
        after = fingerprint(area)
        result["changed"] = sorted(
            path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
        )
        before = after
        results.append(result)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
