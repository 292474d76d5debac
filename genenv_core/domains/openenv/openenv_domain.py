"""The domain `openenv`: an environment behind an OpenEnv server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genenv_core.domains.kit.served.client import ServerAnswer
from genenv_core.domains.kit.served.episode import EpisodeStage
from genenv_core.domains.kit.served.programs import MOST_SEED, of_seeds
from genenv_core.domains.kit.served.reach import server_of
from genenv_core.domains.kit.served.served_domain import OpenedTask, ServedDomain
from genenv_core.domains.kit.tools import told
from genenv_core.domains.openenv.actions import LIST_TOOLS, McpForm, form_of, takes_mcp
from genenv_core.domains.openenv.client import OpenEnvServer
from genenv_core.domains.openenv.facts import facts_of
from genenv_core.domains.openenv.options import OpenEnvOptions
from genenv_core.domains.openenv.wording import tell
from genenv_core.ids import seed_from
from genenv_core.types import JsonObject, TaskDraft


class OpenEnvDomain(ServedDomain):
    """An environment of OpenEnv; pi_env writes the arguments of its reset."""

    name = "openenv"
    code = "1"
    rules = (
        "You choose the tasks of an environment. A task is one JSON object, the arguments of its "
        "reset, under this schema:"
    )
    widen = "widen domain.options.reset"

    def __init__(self, options: OpenEnvOptions) -> None:
        """Ask the server about itself.

        Raises ConfigError where no OpenEnv server answers, or where its options allow no task.
        """
        unread = (*options.other_rewards, *filter(None, [options.answer]))
        self._hidden = (*options.hidden, *unread)
        server = server_of(OpenEnvServer, options)
        facts = facts_of(server, tasks=options.reset is None)
        schema: dict[str, Any] = options.reset or of_seeds(options.seeds)
        super().__init__(options, server, facts.splits, schema, facts.about)
        self.seeds = 0 if options.reset or facts.splits else options.seeds
        if takes_mcp(facts.action):
            listed = self.asked(lambda session: session.step(LIST_TOOLS))
            self._form = McpForm(listed.observation.get("tools"))
        else:
            self._form = form_of(facts.action)
        self.tools: Sequence[JsonObject] = self._form.tools
        known = (facts.name, facts.version, facts.schema, facts.splits, list(self.tools))
        self.version = self.version_of(*known)

    def tell(self, answer: ServerAnswer) -> str:
        """Return an answer's observation, without fields that the agent does not read."""
        return tell(answer, self._hidden)

    def stage_of(self, draft: TaskDraft) -> EpisodeStage:
        """Return where attempts are played, the same for all tasks."""
        del draft
        remedy = ", or leave fields that differ out (domain.options.hidden)"
        return self.playing(self._form, may_stop=False, remedy=remedy)

    def opened(self, arguments: JsonObject, answer: ServerAnswer) -> OpenedTask:
        """Return the arguments, and the answer from the metadata."""
        solves = told(answer.metadata.get(self.options.answer or "", ""))
        return OpenedTask(arguments, solves, {"reset": arguments})

    def reset_with(self, program: str, arguments: JsonObject) -> JsonObject:
        """Return the arguments, and a seed that the task's program decides."""
        return {"seed": seed_from(self.name, program) % MOST_SEED, **arguments}
