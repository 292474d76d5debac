"""Mirrors made for tests: a folder, and an HTTP server of it on 127.0.0.1 that can misbehave."""

from __future__ import annotations

import io
import json
import threading
import time
import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from genenv_core.benchmarks.downloads.digests import (
    FILE_MODE,
    FOLDER_MODE,
    RUN_MODE,
    TreeEntry,
    git_id_of_bytes,
    git_id_of_entries,
)
from genenv_core.benchmarks.downloads.sources import raw_file, tree_listing

REPO, COMMIT = "some/where", "c0" * 20


def put(mirror: Path, address: str, content: bytes) -> Path:
    """Write what an address has into a mirror, as `wget --force-directories` does."""
    parts = urlsplit(address)
    path = mirror / parts.netloc / unquote(parts.path).lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def put_commit(
    mirror: Path, files: Mapping[str, bytes], repo: str = REPO, commit: str = COMMIT
) -> dict[str, str]:
    """Write a commit's files and listings; returns the git id of each folder by its path."""
    for path, content in files.items():
        put(mirror, raw_file(repo, commit, path), content)
    return _listed(mirror, files, repo, commit, "")


def _listed(
    mirror: Path, files: Mapping[str, bytes], repo: str, commit: str, here: str
) -> dict[str, str]:
    ids: dict[str, str] = {}
    entries: list[TreeEntry] = []
    names = {path.removeprefix(here).split("/")[0] for path in files if path.startswith(here)}
    for name in sorted(names):
        if (path := here + name) in files:
            content = files[path]
            mode = RUN_MODE if name.endswith(".sh") else FILE_MODE
            entries.append(TreeEntry(mode, name, git_id_of_bytes(content), len(content)))
        else:
            ids |= _listed(mirror, files, repo, commit, f"{path}/")
            entries.append(TreeEntry(FOLDER_MODE, name, ids[path]))
    git_id = git_id_of_entries(entries)
    for asked in [git_id, *([commit] if not here else [])]:
        put(mirror, tree_listing(repo, asked), listing(entries))
    return ids | {here.rstrip("/"): git_id}


def listing(entries: list[TreeEntry], **more: Any) -> bytes:
    """Return a listing in GitHub's form."""
    rows = [
        {"path": one.name, "mode": one.mode.zfill(6), "sha": one.git_id, "size": one.size}
        for one in entries
    ]
    return json.dumps({"tree": rows, "truncated": False} | more).encode()


def zipped(members: Mapping[str, bytes]) -> bytes:
    """Return a zip with these members."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return out.getvalue()


@dataclass
class Server:
    """What was asked for and who signed it; paths in `cut` break off, in `stalls` they stop.

    `tags` are ETags.
    """

    url: str = ""
    asked: list[str] = field(default_factory=list)
    signed: list[str] = field(default_factory=list)
    cut: set[str] = field(default_factory=set)
    stalls: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    busy: int = 0
    """Answers that the server refuses to give from now on."""


@contextmanager
def serving(folder: Path) -> Generator[Server]:
    """Serve a folder on a free port."""
    state = Server()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._reply(body=False)

        def do_GET(self) -> None:
            state.asked.append(self.path)
            state.signed.append(self.headers.get("Authorization", ""))
            self._reply(body=True)

        def _reply(self, *, body: bool) -> None:
            path = Path(self.translate_path(self.path))
            if not path.is_file():
                self.send_error(404)
                return
            if state.busy:
                state.busy -= 1
                self.send_error(503)
                return
            content = path.read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            if tag := state.tags.get(self.path):
                self.send_header("ETag", f'"{tag}"')
                self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if not body:
                return
            broken = self.path in state.cut | state.stalls
            self.wfile.write(content[: len(content) // 2] if broken else content)
            self.wfile.flush()
            if self.path in state.stalls:
                time.sleep(1)
            self.close_connection = True

    class Quiet(ThreadingHTTPServer):
        request_queue_size = 128  # with 5, a connection too many waits for a second

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # clients that hang up are part of the tests

    server = Quiet(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()
