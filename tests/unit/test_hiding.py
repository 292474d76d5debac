"""What is hidden in texts that people are shown.

Invariants: a value behind a name of something secret, the user part of a URL and keys known by
their beginnings are hidden; numbers of tokens and plain sentences stay as they are.
"""

from __future__ import annotations

import pytest

from genenv_core.hiding import HIDDEN, words_without_secrets
from tests.mutations import mutation

HIDING = "genenv_core/hiding.py"


@mutation(
    "a key that stands alone is shown", HIDING, "return _KEYS.sub(HIDDEN, named)", "return named"
)
@pytest.mark.parametrize(
    "said",
    [
        "HF_TOKEN=hunter2long",
        "AWS_SECRET_ACCESS_KEY: 'hunter2long'",
        '{"password": "hunter2long", "user": "me"}',
        "GET /x?token=hunter2long&page=2",
        "Authorization: Bearer hunter2long",
        "postgresql://me:hunter2long@db/x refused",
        "refused key hf_hunter2long",
        "sent bearer hunter2long",
        "api_key=hunter2long",
    ],
)
def test_a_secret_is_hidden(said: str) -> None:
    shown = words_without_secrets(said)
    assert "hunter2long" not in shown and HIDDEN in shown
    assert shown.split()[0][:3] == said[:3]


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens=64 rows=3",
        "the token was refused",
        "tokens: 12 of 20",
        "RuntimeError: CUDA out of memory: 3 GiB",
        "http://127.0.0.1:4200/api is away",
    ],
)
def test_what_is_no_secret_stays(said: str) -> None:
    assert words_without_secrets(said) == said
