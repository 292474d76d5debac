"""The domain `ors`: an environment behind a server of ORS, the protocol of OpenReward."""

from __future__ import annotations

from collections.abc import Sequence

from genenv_core.domains.kit.served.client import ServerAnswer, as_object
from genenv_core.domains.kit.served.episode import EpisodeStage
from genenv_core.domains.kit.served.reach import server_of
from genenv_core.domains.kit.served.served_domain import OpenedTask, ServedDomain
from genenv_core.domains.ors.client import OrsServer
from genenv_core.domains.ors.facts import facts_of
from genenv_core.domains.ors.options import OrsOptions
from genenv_core.domains.ors.tools import OrsForm, tell
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import DomainError
from genenv_core.types import JsonObject, TaskDraft


class OrsDomain(ServedDomain):
    """An environment of ORS; pi_env chooses among the server's tasks."""

    name = "ors"
    code = "1"
    rules = (
        "You choose the tasks of an environment. A task is one JSON object that names one of its "
        "tasks, under this schema:"
    )
    widen = "name another split"

    def __init__(self, options: OrsOptions) -> None:
        """Ask the server about itself.

        Raises ConfigError where no server answers, or where it lacks the environment or its tasks.
        """
        self._server = server_of(OrsServer, options)
        facts = facts_of(self._server, options.environment)
        super().__init__(options, self._server, facts.splits, {})
        self._environment, self._listed = facts.environment, facts.tools
        self._form = OrsForm(facts.tools)
        self.tools: Sequence[JsonObject] = self._form.tools
        self.version = self.version_of(facts.environment, facts.splits, list(self.tools))

    def tell(self, answer: ServerAnswer) -> str:
        """Return the texts of an answer."""
        return tell(answer)

    def tools_of(self, draft: TaskDraft) -> Sequence[JsonObject]:
        """Return the environment's tools, and those that only this task has."""
        return self._form_of(draft.spec).tools

    def stage_of(self, draft: TaskDraft) -> EpisodeStage:
        """Return where attempts at this task are played; an agent may stop before any reward."""
        return self.playing(self._form_of(draft.spec), may_stop=True, remedy="")

    def opened(self, arguments: JsonObject, answer: ServerAnswer) -> OpenedTask:
        """Return the task's own tools, and where an option names a field, the server's own task."""
        spec: JsonObject = {"reset": arguments}
        listed = answer.metadata.get("tools")
        if isinstance(listed, list) and listed != self._listed:
            spec["tools"] = listed
        wanted = (self.options.answer, self.options.family, self.options.difficulty)
        fields = self._task_of(arguments) if any(wanted) else {}
        solves = fields.get(self.options.answer or "")
        said = "" if solves is None else self._form_of(spec).answered(solves)
        return OpenedTask(fields, said, spec)

    def reset_with(self, program: str, arguments: JsonObject) -> JsonObject:
        """Return the arguments that open a session with this task."""
        del program
        return {"env_name": self._environment, **arguments}

    def _form_of(self, spec: JsonObject) -> OrsForm:
        return OrsForm(spec["tools"]) if "tools" in spec else self._form

    def _task_of(self, arguments: JsonObject) -> JsonObject:
        """Return the server's own task; raises DomainError where the server is lost."""
        try:
            found = self._server.call("POST", f"/{self._environment}/task", arguments)
        except EnvironmentLost as error:
            raise DomainError(f"domain ors: no task was made of {arguments}: {error}") from error
        return as_object(as_object(found).get("task"))
