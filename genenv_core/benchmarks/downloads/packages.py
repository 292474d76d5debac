"""Downloads a wheel through the pip and the package index that the user has set up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from genenv_core.benchmarks.downloads.origin import DownloadOrigin
from genenv_core.benchmarks.downloads.sources import Wheel
from genenv_core.errors import DownloadError, one_line


def save_wheel(part: Wheel, origin: DownloadOrigin, into: Path) -> Path:
    """Download the wheel into `into` without installing it; return its file. Raises DownloadError.

    pip refuses a file with another digest than `part` has.
    """
    into = into.absolute()  # pip works in another folder
    path = into / part.file
    if origin.mirror:
        origin.save(part.address, path, part.most)
        return path
    wanted = into / "wanted.txt"
    wanted.write_text(f"{part.project}=={part.version} --hash=sha256:{part.sha256}\n")
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"),
        *("--require-hashes", "--only-binary=:all:", "--disable-pip-version-check"),
        *("--dest", str(into), "--requirement", str(wanted)),
    ]
    try:
        # In `into`, so that no module of the current folder stands before pip's.
        done = subprocess.run(
            command, cwd=into, capture_output=True, text=True, timeout=origin.limits.pip_s,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        limit = f"{origin.limits.pip_s:g} s"
        raise DownloadError(f"pip download {part.project}: not done within {limit}") from error
    except OSError as error:
        raise DownloadError(f"pip download {part.project}: {one_line(error, 200)}") from error
    if done.returncode or not path.is_file():
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        why = one_line(" ".join(said) or done.stderr or f"it brought no {part.file}", 300)
        raise DownloadError(f"pip download {part.project}=={part.version}: {why}")
    if path.stat().st_size > part.most:
        raise DownloadError(f"{part.file}: more than {part.most:,} bytes")
    return path
