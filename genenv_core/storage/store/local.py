"""The Store on a local directory.

Commit protocol: the store writes a file with a temporary name, syncs it, then links it to its final
name. A link is atomic and exclusive, where a rename would overwrite a rival's record. Objects are
read-only files (0444).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Generator, Sequence
from pathlib import Path

from genenv_core.canonical import file_sha256
from genenv_core.errors import AlreadyExists, NotFound, StorageError
from genenv_core.machine.shortage import AGAIN, BY_NUMBER
from genenv_core.named_files import why_not_written
from genenv_core.storage import paths
from genenv_core.storage.files import move_over, sync, temporary
from genenv_core.storage.store.abilities import ELSEWHERE, TOGETHER, check_abilities
from genenv_core.storage.store.protocol import Stat

_REMEDY = {
    **BY_NUMBER,
    errno.EFBIG: f"no file may grow this large (`ulimit -f`): raise the limit {AGAIN}",
    errno.EROFS: "the file system is read-only: choose another --root",
    errno.EACCES: "permission denied: choose another --root or change its permissions",
    errno.EPERM: "not permitted: choose another --root or change its permissions",
    errno.ENAMETOOLONG: "the path is too long: choose a shorter --root",
    errno.ELOOP: "its links lead in a circle: choose another --root",
    errno.ENOTDIR: "a part of the path is a file: choose another --root",
    errno.EXDEV: f"it is on another file system or mount than `tmp` of the root: {TOGETHER}",
    errno.EOPNOTSUPP: f"the file system cannot do what a root needs: {ELSEWHERE}",
    errno.EMLINK: f"the file system allows no further hard link to a file: {ELSEWHERE}",
}


LOCK = "swap.lock"
"""An empty file at the root; whoever compares and swaps holds it for that moment."""


class LocalStore:
    """A directory as a `Store`, safe for any number of processes where files have hard links."""

    at_once = 1

    def __init__(
        self,
        root: Path,
        *,
        writable: bool = True,
        folders: Sequence[str] = paths.FOLDERS,
        links: bool = True,
    ) -> None:
        """Open (and create) the directory; raises StorageError when it cannot hold a root.

        A directory cannot where this process may not write, or where `check_abilities`, which gets
        `folders` and `links`, fails. With `writable` False the store makes no check, and the
        directory may be somebody else's.
        """
        self.root = root.expanduser().absolute()
        self.uri = str(self.root)
        self.home = self.root
        if not writable:
            return
        with self._errors(self.root):
            try:
                (self.root / "tmp").mkdir(parents=True, exist_ok=True)
            except (FileNotFoundError, FileExistsError) as error:
                why = why_not_written(self.root, error, folder=True)
                raise StorageError(f"root {self.root} cannot be made: {why}") from error
            self._temporary(b"").unlink()
            check_abilities(self.root, folders, links=links)

    def read(self, path: str) -> bytes:
        with self._errors(self.root / path):
            return (self.root / path).read_bytes()

    def size(self, path: str) -> int | None:
        with self._errors(self.root / path), contextlib.suppress(FileNotFoundError):
            return (self.root / path).stat().st_size
        return None

    def stats(self, paths: Sequence[str]) -> list[Stat | None]:
        """Return the size of each object, without a digest: only its bytes give that."""
        sizes = [self.size(path) for path in paths]
        return [None if size is None else Stat(size) for size in sizes]

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for path in paths:
            try:
                found.append(self.read(path))
            except NotFound:
                found.append(None)
        return found

    def sha256(self, path: str) -> str:
        with self._errors(self.root / path):
            return file_sha256(self.root / path)

    def create(self, path: str, data: bytes) -> None:
        target = self.root / path
        with self._errors(target):
            made = self._temporary(data)
            try:
                self._link(made, target)
            finally:
                made.unlink(missing_ok=True)

    def replace(self, path: str, data: bytes) -> None:
        target = self.root / path
        with self._errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            move_over(self._temporary(data), target, durable=True)

    def swap(self, path: str, expected: bytes | None, data: bytes) -> bool:
        # The kernel frees the lock of a killed process, whose unfinished file has a temporary name.
        with self._errors(self.root / LOCK), (self.root / LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                current = self.read(path)
            except NotFound:
                current = None
            if current != expected:
                return False
            self.replace(path, data)
            return True

    def adopt(self, source: Path, path: str) -> None:
        target = self.root / path
        with self._errors(target), contextlib.suppress(AlreadyExists):
            sync(source)
            source.chmod(0o444)
            self._link(source, target)

    def local(self, path: str) -> Path:
        """Return the file itself."""
        target = self.root / path
        if not target.is_file():
            raise NotFound(f"{target} does not exist")
        return target

    def held(self, path: str) -> Path | None:
        target = self.root / path
        return target if target.is_file() else None

    def files(self, paths: Sequence[str]) -> list[str]:
        """Return the absolute file names."""
        return [str(self.root / path) for path in paths]

    def mark(self, path: str) -> str:
        try:
            status = os.stat(f"{self.uri}/{path}")
        except OSError:
            return ""
        return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"

    def modified(self, path: str) -> float | None:
        with self._errors(self.root / path), contextlib.suppress(FileNotFoundError):
            return (self.root / path).stat().st_mtime
        return None

    def clock(self) -> float:
        """Return the file system's time, which need not be this machine's."""
        probe = self.root / "tmp" / uuid.uuid4().hex
        with self._errors(probe):
            probe.touch()
            now = probe.stat().st_mtime
            probe.unlink(missing_ok=True)
            return now

    def touch(self, path: str) -> bool:
        with self._errors(self.root / path):
            try:
                os.utime(self.root / path)
            except FileNotFoundError:
                return False
            return True

    def names(self, prefix: str) -> list[str]:
        with self._errors(self.root / prefix):
            try:
                return sorted(os.listdir(self.root / prefix))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def list(self, prefix: str) -> list[str]:
        folder = self.root / prefix
        with self._errors(folder):
            found = (
                os.path.join(place, name)
                for place, _, names in os.walk(folder, onerror=_unless_gone)
                for name in names
            )
            return sorted(os.path.relpath(one, self.root) for one in found if os.path.isfile(one))

    def delete(self, path: str) -> None:
        with self._errors(self.root / path):
            (self.root / path).unlink(missing_ok=True)

    def delete_older(self, path: str, than: float) -> bool:
        source, aside = self.root / path, self.root / "tmp" / uuid.uuid4().hex
        with self._errors(source):
            try:
                if source.stat().st_mtime >= than:
                    return False
                os.rename(source, aside)
            except FileNotFoundError:
                return False
            # Look once more, now that nobody can touch the file. A writer that comes now finds no
            # file and writes anew; one that came just before gets its file back.
            old = aside.stat().st_mtime < than
            if not old:
                with contextlib.suppress(FileExistsError):
                    os.link(aside, source)
            aside.unlink()
            return old

    def snapshot(self) -> LocalStore:
        """Return itself: copies of its files would be no nearer."""
        return self

    def collecting(self) -> contextlib.AbstractContextManager[object]:
        """Return a context without a lease: gc renames an object out of sight before it judges."""
        return contextlib.nullcontext()

    def delete_folder(self, path: str) -> None:
        """Move a folder or a file out of sight, then remove it; a no-op for a missing one."""
        aside = self.root / "tmp" / uuid.uuid4().hex
        with self._errors(self.root / path), contextlib.suppress(FileNotFoundError):
            os.rename(self.root / path, aside)
            if not aside.is_dir():
                aside.unlink()
        shutil.rmtree(aside, ignore_errors=True)

    def freed(self, path: str) -> int:
        """Return the bytes that `delete_folder` would free, without hard-linked files."""
        files = [self.root / item for item in (path, *self.list(path))]
        with self._errors(self.root / path), contextlib.suppress(FileNotFoundError):
            found = [file.stat() for file in files if file.is_file()]
            return sum(status.st_size for status in found if status.st_nlink == 1)
        return 0

    def scratch(self) -> Path:
        folder = self.root / "tmp" / uuid.uuid4().hex
        with self._errors(folder):
            folder.mkdir()
        return folder

    def folder(self, path: str) -> Path:
        folder = self.root / path
        with self._errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _temporary(self, data: bytes) -> Path:
        return temporary(self.root / "tmp", data, durable=True, mode=0o444)

    def _link(self, source: Path, target: Path) -> None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(source, target)
            sync(target.parent)
        except FileExistsError as error:
            source.unlink(missing_ok=True)
            raise AlreadyExists(f"{target} is already there") from error
        source.unlink()

    @contextlib.contextmanager
    def _errors(self, path: Path) -> Generator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise NotFound(f"{path} does not exist") from error
        except OSError as error:
            remedy = _REMEDY.get(error.errno or 0, error.strerror or str(error))
            raise StorageError(f"{path}: {remedy}") from error


def _unless_gone(error: OSError) -> None:
    """Ignore the error of a folder that others remove, or move into place, during the listing."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
