"""Sizes: units of 1000 and of 1024 differ, in any letter case, and nothing else is a size."""

from __future__ import annotations

import pytest

from genenv_core.storage.sizes import bytes_in


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4GiB", 4 * 2**30),
        ("4GB", 4 * 10**9),
        ("4G", 4 * 10**9),
        ("1.5 kib", 1536),
        (" 512MB ", 512 * 10**6),
        ("2TiB", 2 * 2**40),
        ("20", 20),
        ("20B", 20),
        ("0", 0),
        *((text, None) for text in ("", "GB", "lots", "-1GB", "1PB", "4 iB", "4GG", "1e9")),
    ],
)
def test_sizes_are_parsed_or_refused(text: str, expected: int | None) -> None:
    assert bytes_in(text) == expected
