"""Options that all domains of a served environment have, from `domain.options`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from genenv_core.domains.kit.kit_domain import Options
from genenv_core.domains.kit.served.keys import AUTHORIZATION, ServerKey, check_address
from genenv_core.errors import ConfigError
from genenv_core.hiding import names_secret
from genenv_core.machine.named_secrets import REFERENCES, checked_variable
from genenv_core.machine.wrong_values import worded
from genenv_core.types import JsonObject

HEADER = worded(r"^[A-Za-z][A-Za-z0-9-]*$", "the name of a header: letters, digits and hyphens")
APP = worded(
    r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", "an app by its module, as in package.server.app:app"
)


class ServedOptions(Options):
    """Where the server is, which of its tasks are held out, and what its rewards mean.

    Class attributes:
        url_variable: environment variable with the server's address, for runs without `url`.
            Such an address is in no key and may change.
        python_variable: environment variable with the interpreter that has the environment's
            package.
        package: the package that this interpreter needs.
    """

    url_variable: ClassVar[str]
    python_variable: ClassVar[str]
    package: ClassVar[str]

    url: str | None = Field(default=None, min_length=1)
    """Address of the server, such as `http://127.0.0.1:8000`; None: that in the variable
    `url_variable`."""
    key_env: str | None = None
    """Name (in capitals) of the environment variable with the server's key, set wherever genenv and
    its workers run. None: no key is sent. The key itself goes into no file of genenv."""
    key_header: str = Field(default=AUTHORIZATION, pattern=HEADER)
    """The header that sends the key: `Authorization: Bearer KEY`, or another one with the key
    alone, such as OpenReward's X-API-Key."""
    key_over_http: bool = False
    """Whether the key may go unencrypted, over http, to another machine: to a service in one's own
    cluster, for instance. It may always go over https, and to this machine."""
    serve: str | None = Field(default=None, pattern=APP)
    """An app to serve on 127.0.0.1 in place of a server elsewhere, `package.server.app:app`; the
    interpreter in the variable `python_variable` imports it."""
    variables: tuple[str, ...] = ()
    """With `serve`: names of the environment variables that the app gets."""
    split: str = "train"
    """For a server with its own tasks: the split that pi_env chooses from."""
    test_split: str = "test"
    """For a server with its own tasks: the split of held-out tasks. Where the server lacks it, a
    hash holds out every fifth task."""
    family: str | None = None
    """The field of a task that names its family in statistics; None: all tasks are one family."""
    difficulty: str | None = None
    """The field of a task with its difficulty, a number; None: all tasks are equally hard."""
    answer: str | None = None
    """The field with the text that solves a task in one turn; None: the server does not say."""
    instructions: str = ""
    """A text that the agent reads before the text of the reset."""
    reward: Literal["last", "sum", "max"] = "last"
    """Which of the steps' rewards is the reward of an attempt: the last, the sum, or the
    largest."""
    other_rewards: tuple[str, ...] = ()
    """Names of other numbers in answers, to store beside the reward; they decide no verdict. They
    are fields of the metadata, or with OpenEnv also of the observation."""
    reward_range: tuple[float, float] = (0.0, 1.0)
    """The worst and the best reward of an attempt; they become R_agent 0 and 1."""
    success_at: float = Field(default=1.0, gt=0, le=1)
    """Least R_agent of a success."""
    repeatable: bool = True
    """Whether equal arguments and actions get equal answers. false: an attempt that loses its
    session fails, and attempts share no sessions."""
    sessions: int = Field(default=64, ge=1, le=10_000)
    """Most sessions with the server at once; genenv uses fewer where the server says that it is
    full."""
    timeout_s: float = Field(default=30.0, gt=0, le=3600)
    """Longest wait for one answer, in seconds."""
    wait_s: float = Field(default=30.0, ge=0, le=3600)
    """How many seconds genenv asks a server again that gives no answer."""

    @model_validator(mode="before")
    @classmethod
    def _without_keys(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse an option whose name looks like a key, before any error repeats its value."""
        for name in given:
            if name not in cls.model_fields and (name == "key" or names_secret(name)):
                raise ConfigError(
                    f"domain.options.{name} looks like a secret, and configurations are kept, "
                    "shown and logged: name its variable in domain.options.key_env"
                )
        return given

    # ConfigError and no ValueError: an error of pydantic repeats the value, which may be a key.
    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str | None) -> str | None:
        return None if url is None else check_address(url, "domain.options.url")

    @field_validator("key_env")
    @classmethod
    def _a_name(cls, name: str | None) -> str | None:
        try:
            return checked_variable(name)
        except ValueError as error:
            raise ConfigError(f"domain.options.key_env: {error}") from None

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.key_env and self.serve:
            raise ValueError("key_env is for a server at a url, and serve names an app: remove one")
        if self.key_env is None and self.key_header != AUTHORIZATION:
            raise ValueError("key_header does nothing without key_env: set that or remove this")
        if self.key_env is None and self.key_over_http:
            raise ValueError("key_over_http does nothing without key_env: set that or remove this")
        if self.url and self.serve:
            raise ValueError("url and serve both name a server: give one of them")
        low, high = self.reward_range
        if not low < high:
            raise ValueError(f"reward_range {low:g} to {high:g}: give the worst reward first")
        return self

    @property
    def address(self) -> str:
        """Return the address of the server.

        Raises ConfigError where no option or variable names it, and where its key is missing or
        would go unencrypted.
        """
        found = self.url or os.environ.get(self.url_variable)
        if not found:
            raise ConfigError(
                f"domain.options.url: no server is named: give http://HOST:PORT, or set "
                f"{self.url_variable}, or name an app in domain.options.serve"
            )
        check_address(found, "domain.options.url" if self.url else self.url_variable)
        self.key.read()
        self.key.check_place(found)
        return found

    @property
    def key(self) -> ServerKey:
        """Return where the server's key is, and how requests send it."""
        return ServerKey(self.key_env, self.key_header, self.key_over_http)

    @property
    def meaning(self) -> JsonObject:
        """Return the options that decide tasks and verdicts."""
        where = {"url", "serve", "variables", "sessions", "timeout_s", "wait_s"}
        # Left out while unused, so that runs from before this option keep their keys.
        unused = set[str]() if self.other_rewards else {"other_rewards"}
        return self.model_dump(mode="json", exclude={*where, *unused, *REFERENCES})
