"""Finds the address of a data set's file on the Hugging Face hub, and the hub's digest of it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from genenv_core.benchmarks.downloads.origin import DownloadOrigin
from genenv_core.benchmarks.downloads.sources import HubFile
from genenv_core.errors import DownloadError, one_line


@dataclass(frozen=True, slots=True)
class HubAddress:
    """An address, and the hub's digest in one of two kinds, if any."""

    address: str
    git_id: str = ""
    sha256: str = ""


def hub_file(part: HubFile, origin: DownloadOrigin) -> HubAddress:
    """Return a file's address and digest, without a digest for a mirror. Raises DownloadError.

    HF_ENDPOINT names another hub, as for huggingface_hub itself.
    """
    if origin.mirror:
        return HubAddress(part.address)
    from huggingface_hub import get_hf_file_metadata, hf_hub_url  # pyright: ignore[reportUnknownVariableType]

    endpoint = os.environ.get("HF_ENDPOINT") or None
    address = hf_hub_url(
        part.repo, part.name, repo_type="dataset", revision=part.revision, endpoint=endpoint
    )
    try:
        # Public data: it needs no key of the user.
        metadata = get_hf_file_metadata(address, token=False, timeout=origin.limits.connect_s)
    except Exception as error:  # the hub client raises its own, HTTP and OS errors
        said = one_line(error, 200)
        raise DownloadError(f"{address}: {type(error).__name__}: {said}") from error
    tag = metadata.etag or ""
    if metadata.size is not None and metadata.size > part.most:
        raise DownloadError(f"{address}: {metadata.size:,} bytes, more than {part.most:,}")
    git_id, sha256 = (tag if re.fullmatch(f"[0-9a-f]{{{n}}}", tag) else "" for n in (40, 64))
    return HubAddress(address, git_id, sha256)
