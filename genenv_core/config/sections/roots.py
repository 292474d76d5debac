"""Other roots that a run reads from.

They decide no result: no stage key holds them, and a run with other ones is the same run.
"""

from __future__ import annotations

import re

from pydantic import field_validator

from genenv_core.config.sections.section import Section


class RootsConfig(Section):
    """Roots beside the run's own, into which alone genenv writes."""

    read: tuple[str, ...] = ()
    """Roots to look for finished stages in, such as [s3://team/genenv], in this order: genenv takes
    a stage from the first that has it. It writes nothing there. Credentials as for root."""

    @field_validator("read")
    @classmethod
    def _roots(cls, uris: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse a text that names no root, and a password, as genenv keeps, shows and logs them.

        The error about a password does not repeat it.
        """
        for uri in uris:
            scheme, separator, rest = uri.strip().partition("://")
            if not uri.strip() or (separator and not rest):
                raise ValueError(f"read {uri!r} names no root: write a directory or s3://...")
            if separator and scheme not in ("s3", "file"):
                raise ValueError(
                    f"read holds a root at {scheme}://, for which there is no store: use a "
                    "directory or s3://"
                )
            if scheme == "s3" and ("@" in rest or re.search(r"[?&]\w+=", rest)):
                raise ValueError(
                    "read holds a root with credentials: leave them out; they come from the "
                    "environment, as for root (docs/s3.md)"
                )
        if twice := next((uri for uri in uris if uris.count(uri) > 1), None):
            raise ValueError(f"read {twice!r} stands twice, remove it")
        return uris
