"""A model behind an OpenAI-compatible chat endpoint: what genenv asks of it, and how."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from genenv_core.config.sections.section import Section
from genenv_core.machine.named_secrets import ADDRESS, checked_variable

OWN_FIELDS = frozenset({"messages", "model", "n", "stream", "stream_options", "tools"})
"""Fields of a chat request that genenv sets itself."""


class NamedEndpoint(Section):
    """A model at a URL; `section` is the one of the configuration that names it."""

    section: ClassVar[str]

    url: str = Field(min_length=1)
    """An OpenAI-compatible endpoint, such as http://host:8000/v1; genenv adds /chat/completions."""
    model_name: str = Field(min_length=1)
    """Name of the model at `url`."""
    request: dict[str, Any] = Field(default_factory=dict[str, Any])
    """More fields of each request to `url`; null leaves one of genenv's out. An endpoint that knows
    no max_tokens takes {max_tokens: null, max_completion_tokens: 1024}."""

    @model_validator(mode="after")
    def _endpoint(self) -> Self:
        """Refuse an address of another form, and a request that could hold a key."""
        section = self.section
        if not re.fullmatch(ADDRESS, self.url):
            raise ValueError(
                f"{section}.url is no address like https://host/v1, without a user and a query; a "
                "key goes into the environment variable that "
                f"execution.{section}.key_env names"
            )
        for name in sorted(self.request):
            if name in OWN_FIELDS:
                raise ValueError(f"{section}.request {name!r} is set by genenv itself: remove it")
            if "api_key" in name.lower() or name.lower() == "authorization":
                raise ValueError(
                    f"{section}.request {name!r} looks like a secret, and configurations are kept, "
                    f"shown and logged: name its variable in execution.{section}.key_env"
                )
        return self


class EndpointAsking(Section):
    """How genenv asks an endpoint. No stage key holds these fields."""

    key_env: str | None = None
    """Name (in capitals) of the environment variable with the endpoint's key, set where the stage
    is computed. None: genenv sends no key. It writes the key itself into no file."""
    concurrency: int = Field(default=16, ge=1, le=10_000)
    """Requests to the endpoint at the same time."""
    request_seconds: float = Field(default=300.0, ge=0.1, le=86_400)
    """Longest wait for the answer to one request."""
    retries: int = Field(default=5, ge=0, le=100)
    """Further tries of one request after an answer 408, 409, 424, 425, 429 or 5xx, one that cannot
    be read, a lost connection or a time-out."""
    backoff_seconds: float = Field(default=1.0, ge=0, le=600)
    """Longest pause before the first further try; it doubles with each, up to 60 seconds. genenv
    keeps a pause that the endpoint asks for (Retry-After)."""

    @field_validator("key_env")
    @classmethod
    def _a_name(cls, name: str | None) -> str | None:
        """Refuse an invalid name, without repeating it: it may be the key itself."""
        return checked_variable(name)
