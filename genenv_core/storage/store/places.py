"""This machine's places for roots elsewhere: a bounded cache, and a folder for each root.

`GENENV_CACHE_DIR` and `GENENV_STATE_DIR` name other places than the user's own;
`GENENV_CACHE_SIZE` bounds the cache.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from genenv_core.canonical import sha256
from genenv_core.errors import ConfigError
from genenv_core.storage.sizes import bytes_in

CACHE, STATE, SIZE = "GENENV_CACHE_DIR", "GENENV_STATE_DIR", "GENENV_CACHE_SIZE"
DEFAULT_SIZE = "20GB"


def cache_folder() -> Path:
    """Return the folder of downloaded objects; losing it costs downloads."""
    given = os.environ.get(CACHE)
    return Path(given).expanduser().absolute() if given else platformdirs.user_cache_path("genenv")


def cache_bytes() -> int:
    """Return how much the cache may hold; raises ConfigError for a text that gives no size."""
    text = os.environ.get(SIZE) or DEFAULT_SIZE
    found = bytes_in(text)
    if found is None:
        raise ConfigError(f"{SIZE} {text!r}: write a size, for example 500MB or 20GB")
    return found


def state_folder(uri: str) -> Path:
    """Return this machine's folder of a root elsewhere, for what its runs keep beside the store."""
    given = os.environ.get(STATE)
    state = Path(given).expanduser().absolute() if given else platformdirs.user_state_path("genenv")
    readable = "".join(c if c.isalnum() or c in "._-" else "-" for c in uri.partition("://")[2])
    return state / "roots" / f"{readable[:60].strip('.-')}-{sha256(uri.encode())[:8]}"
