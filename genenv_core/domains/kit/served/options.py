"""Options that all domains of a served environment have, from `domain.options`."""

from __future__ import annotations

import os
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from genenv_core.domains.kit.domain import Options
from genenv_core.errors import ConfigError
from genenv_core.types import JsonObject


class ServedOptions(Options):
    """Where the server is, what is held out of its tasks, and what its rewards mean.

    Class attributes:
        url_variable: names the server where `url` is not given: then its address is in no key, and
            may change.
        python_variable: names the interpreter that has the environment's package.
        package: what that interpreter has to have.
    """

    url_variable: ClassVar[str]
    python_variable: ClassVar[str]
    package: ClassVar[str]

    url: str | None = Field(default=None, min_length=1)
    """Address of the server, such as `http://127.0.0.1:8000`; None: what `url_variable` names."""
    serve: str | None = Field(default=None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    """An app to serve on 127.0.0.1 in the place of a server elsewhere, `package.server.app:app`;
    the interpreter that `python_variable` names imports it."""
    variables: tuple[str, ...] = ()
    """With `serve`: names of environment variables that the app gets."""
    split: str = "train"
    """Of a server with tasks: the split that pi_env chooses from."""
    test_split: str = "test"
    """Of a server with tasks: the split of held-out tasks. Without it, every fifth task by a hash
    is held out."""
    family: str | None = None
    """The field of a task that is its family in statistics; None: all are one family."""
    difficulty: str | None = None
    """The field of a task that is its difficulty, a number; None: all are equally hard."""
    answer: str | None = None
    """The field with what solves a task in one turn; None: nobody knows."""
    instructions: str = ""
    """What the agent reads before what the reset says."""
    reward: Literal["last", "sum", "max"] = "last"
    """What an attempt's reward is, of those of its steps."""
    other_rewards: tuple[str, ...] = ()
    """Names of other numbers in answers, which are stored beside the reward and judge nothing: of
    the metadata, or with OpenEnv also of the observation."""
    reward_range: tuple[float, float] = (0.0, 1.0)
    """The worst and the best reward of an attempt, where R_agent is 0 and 1."""
    success_at: float = Field(default=1.0, gt=0, le=1)
    """R_agent from which on an attempt is a success."""
    repeatable: bool = True
    """Whether equal arguments and actions get equal answers. false: an attempt that loses its
    session fails, and attempts share no sessions."""
    sessions: int = Field(default=64, ge=1, le=10_000)
    """Sessions with the server at once; fewer where it says that it is full."""
    timeout_s: float = Field(default=30.0, gt=0, le=3600)
    """Longest wait for one answer, in seconds."""
    wait_s: float = Field(default=30.0, ge=0, le=3600)
    """How long a server that gives no answer is waited for, in seconds."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.url and self.serve:
            raise ValueError("url and serve both name a server: give one of them")
        low, high = self.reward_range
        if not low < high:
            raise ValueError(f"reward_range {low:g} to {high:g}: give the worst reward first")
        return self

    @property
    def address(self) -> str:
        """Return the address of the server; raises ConfigError where nobody says it."""
        found = self.url or os.environ.get(self.url_variable)
        if not found:
            raise ConfigError(
                f"domain.options.url: no server is named: give http://HOST:PORT, or set "
                f"{self.url_variable}, or name an app in domain.options.serve"
            )
        return found

    @property
    def meaning(self) -> JsonObject:
        """Return the options that decide what tasks and verdicts are."""
        where = {"url", "serve", "variables", "sessions", "timeout_s", "wait_s"}
        # Without other rewards it is what it was before there were any: runs keep their keys.
        unused = set[str]() if self.other_rewards else {"other_rewards"}
        return self.model_dump(mode="json", exclude=where | unused)
