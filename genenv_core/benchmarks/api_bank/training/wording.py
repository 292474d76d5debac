"""Prompts for pi_env: to write a request, and to play the APIs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from genenv_core.benchmarks.api_bank.tools import needed
from genenv_core.benchmarks.training.own_tasks import task_request
from genenv_core.domains.parts import AIM
from genenv_core.types import AgentHistory, JsonObject

_BASE = {
    "request": "Please water the plant. The plant name is fern.",
    "api": "WaterPlant",
    "arguments": {"plant_name": "fern"},
}
_HARDER = {
    "request": "I lost my garden key. I am tilda, my word is k3pq9. Once you have it, have the "
    "roses in bed 7 cut on March 4th, but not the tulips.",
    "api": "CutFlowers",
    "arguments": {"key": "g7m2", "flower": "roses", "bed": 7, "date": "2023-03-04"},
    "before": [
        {
            "api": "GetGardenKey",
            "arguments": {"username": "tilda", "password": "k3pq9"},
            "answer": {"key": "g7m2"},
        }
    ],
}

ENV_RULES = (
    "You write requests of a user for an agent that calls APIs, and the calls that are right. "
    "Answer with one JSON object on one line, and nothing else: request, api, arguments and, where "
    "an API needs what another one answers, before: the calls to make first, each with api, "
    "arguments and the answer that it gives.\n"
    "Use the APIs that are listed, with arguments of the type and format that the list says; none "
    "is missing that is not optional. The current year is 2023. The request is plain English. It "
    "says every value, word for word, except dates and numbers, which it may say in words, and "
    "what an earlier answer says. It never has an API's name or a call. Invent all names and "
    "values.\n"
    "More arguments, dates in words, things said beside the point, and calls to make first are "
    "harder.\n"
    f"{AIM}\n"
    f"{task_request(AgentHistory(0.9), json.dumps(_BASE))}\n"
    f"{json.dumps(_HARDER)}\n"
    "The APIs of the example are not there."
)

TOOL_RULES = (
    "You play APIs. You are told a call and what is on record as its answer. Answer with one JSON "
    'object and nothing else: {"content": "...", "name": "..."}, where content is the answer on '
    "record, word for word, and name is the API."
)

OBSERVATION_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"content": {"type": "string"}, "name": {"type": "string"}},
    "required": ["content"],
    "additionalProperties": False,
}
"""What pi_env writes in the place of an API."""


def listed(docs: Iterable[Mapping[str, Any]], *, explained: bool = True) -> str:
    """Return APIs as pi_env reads them, a line each; unexplained ones are names alone."""
    if explained:
        return "\n".join(_line(doc) for doc in docs)
    return "\n".join(f"{doc['name']}: {' '.join(doc['input_parameters'])}" for doc in docs)


def _line(doc: Mapping[str, Any]) -> str:
    wanted = needed(doc)
    arguments = [
        f"{name} ({of.get('type')}{'' if name in wanted else ', optional'}): "
        f"{of.get('description', '')}"
        for name, of in doc["input_parameters"].items()
    ]
    return f"{doc['name']}: {doc.get('description', '')} Arguments: {' '.join(arguments)}"
