"""The domain `nemo_gym`: an environment behind a resources server of NeMo Gym."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from genenv_core.domains.kit.served.answered import AnsweredDomain
from genenv_core.domains.kit.served.client import ServerAnswer, as_object
from genenv_core.domains.kit.served.episode import EpisodeStage
from genenv_core.domains.kit.served.reach import server_of
from genenv_core.domains.kit.served.served_domain import OpenedTask, ServedDomain
from genenv_core.domains.kit.tools import told
from genenv_core.domains.nemo_gym.client import GymServer
from genenv_core.domains.nemo_gym.facts import facts_of
from genenv_core.domains.nemo_gym.options import GymOptions
from genenv_core.domains.nemo_gym.rows import GymRow, read_rows
from genenv_core.domains.nemo_gym.turns import VERIFY, GymForm
from genenv_core.domains.tool_calls import written
from genenv_core.errors import DomainError
from genenv_core.types import JsonObject, Message, TaskDraft

END = "done"
"""The agent's turn where it has nothing to say after its calls."""


class GymDomain(ServedDomain):
    """An environment of NeMo Gym; pi_env chooses among the rows of a file."""

    name = "nemo_gym"
    code = "1"
    rules = (
        "You choose the tasks of an environment. A task is one JSON object that names one of its "
        "tasks, under this schema:"
    )
    widen = "name a file with more rows (domain.options.rows)"

    def __init__(self, options: GymOptions) -> None:
        """Read the rows, and ask the server about itself.

        Raises ConfigError for bad rows, or where no resources server answers.
        """
        path = Path(options.rows)
        self._rows = read_rows(path, options.split_field, options.split)
        self.files: Sequence[str | Path] = [path]
        self._forms = {
            row.listed: GymForm(list(row.tools)) for rows in self._rows.values() for row in rows
        }
        server = server_of(GymServer, options)
        facts = facts_of(server)
        server.closes = facts.closes
        sizes = {split: len(rows) for split, rows in self._rows.items()}
        super().__init__(options, server, sizes, {})
        alike = len(self._forms) == 1
        self.tools: Sequence[JsonObject] = next(iter(self._forms.values())).tools if alike else ()
        self.version = self.version_of(facts.name, facts.version, facts.schema)

    @property
    def other_rewards(self) -> Collection[str] | None:
        """Return the names in the options; None, for all numbers of a verdict, without names."""
        return self.options.other_rewards or None

    def tell(self, answer: ServerAnswer) -> str:
        """Return the text of an answer."""
        return str(answer.observation["text"])

    def tools_of(self, draft: TaskDraft) -> Sequence[JsonObject]:
        """Return the tools of the task's row."""
        return self._form_of(draft).tools

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return the messages of the row, with the instructions in front."""
        said = list(self._row(as_object(draft.spec.get("reset"))).messages)
        rules = [self.options.instructions] if self.options.instructions else []
        if said[0]["role"] == "system":
            rules.append(said.pop(0)["content"])
        first: list[Message] = [{"role": "system", "content": "\n\n".join(rules)}] if rules else []
        return [*first, *said]

    def stage_of(self, draft: TaskDraft) -> EpisodeStage:
        """Return where attempts at this task are played; each ends with a verdict."""
        return self.playing(self._form_of(draft), may_stop=False, remedy="")

    def opened(self, arguments: JsonObject, answer: ServerAnswer) -> OpenedTask:
        """Return the row's fields, and its answer as a text or as a call in the agent's form."""
        del answer
        fields = self._row(arguments).fields
        solves = fields.get(self.options.answer or "", "")
        call = as_object(solves)
        if isinstance(call.get("name"), str) and isinstance(call.get("arguments"), dict):
            solves = written({"name": call["name"], "arguments": call["arguments"]})
        return OpenedTask(fields, told(solves), {"reset": arguments})

    def reset_with(self, program: str, arguments: JsonObject) -> JsonObject:
        """Return the row of a task, and the text that the agent reads of it."""
        del program
        row = self._row(arguments)
        return {"row": row.fields, "prompt": row.prompt}

    def _form_of(self, draft: TaskDraft) -> GymForm:
        return self._forms[self._row(as_object(draft.spec.get("reset"))).listed]

    def _row(self, arguments: JsonObject) -> GymRow:
        """Return the row that the arguments name; raises DomainError for an unknown row."""
        rows = self._rows.get(str(arguments.get("split")), [])
        index = arguments.get("index")
        if not isinstance(index, int) or not 0 <= index < len(rows):
            raise DomainError(
                f"domain nemo_gym: domain.options.rows has no row {arguments!r:.80}: name the file "
                "that the task is of"
            )
        return rows[index]


class AnsweredGym(AnsweredDomain, GymDomain):
    """The domain where a field of the rows says what solves them."""

    def answer_turns(self, draft: TaskDraft) -> list[str]:
        """Return the answer; where it is a call, one more turn ends the attempt."""
        actions = self._form_of(draft).actions(draft.ground_truth)
        ends = actions[-1][0] == VERIFY
        return [draft.ground_truth] if ends else [draft.ground_truth, END]
