"""Runs many queries, each in a fork that confines itself as the sandbox's process does.

One interpreter imports once; a fork for each query changes user, drops its rights and answers.
Layers can be left out, to see what the others stop. Standard input: JSON; standard output: JSON.
"""

from __future__ import annotations

import hashlib
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

NOBODY = 65534

LAYERS: dict[str, tuple[ModuleType, str, Callable[..., Any]]] = {
    "tree": (sandbox_child, "admit", lambda con, sql: None),
    "settings": (duck, "_lock", lambda con, files: None),
    "kernel": (sandbox_child, "confine", lambda files, **limits: False),
}
"""By name of a layer: the function that makes it up, and what stands for it when it is off."""


def fingerprint(area: Path) -> dict[str, str]:
    """Return kind, mode, size, time of change and content of every file below a folder."""
    found: dict[str, str] = {}
    for path in sorted(area.rglob("*")):
        status = path.lstat()
        text = f"{status.st_mode} {status.st_size} {status.st_mtime_ns} "
        if path.is_symlink():
            text += os.readlink(path)
        elif path.is_file():
            text += hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path)] = text
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
        os.chdir(area / "cwd")
        if uid != os.geteuid():
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        leave_out(layers)
        status = 70
        try:
            status = sandbox_child.serve(body, os.fdopen(1, "wb", closefd=False))
        finally:
            os._exit(status)
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
    area = Path(asked["area"])
    # Symlinked and empty folders included; the fork runs as the user who owns everything here.
    before = fingerprint(area)
    results: list[Any] = []
    for query in asked["queries"]:
        body = json.dumps(asked["body"] | {"sql": query}).encode()
        result = answer(body, asked["uid"], asked["layers"], area, asked["timeout_s"])
        after = fingerprint(area)
        result["changed"] = sorted(
            path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
        )
        before = after
        results.append(result)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
