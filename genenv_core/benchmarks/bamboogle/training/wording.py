"""Prompts for pi_env: to write a question, and to play the search engine."""

from __future__ import annotations

import json

from genenv_core.benchmarks.bamboogle.playing import SEARCH
from genenv_core.benchmarks.training.own_tasks import task_request
from genenv_core.domains.parts import AIM
from genenv_core.types import AgentHistory, JsonObject

_BASE = {
    "question": "In what year did the author of The Roads of Hobimere die?",
    "answer": "1711",
    "passages": [
        {
            "title": "The Roads of Hobimere",
            "text": "The Roads of Hobimere is by Sador Pel.",
        },
        {"title": "Sador Pel", "text": "Sador Pel died in 1711."},
    ],
}
_HARDER = {
    "question": "On which river lies the town where the teacher of Nuvek Lior was born?",
    "answer": "Mosaune",
    "passages": [
        {"title": "Orin Tamwyn", "text": "Orin Tamwyn was born in Dekoford."},
        {"title": "Kelihaven", "text": "Kelihaven lies on the river Bagine."},
        {"title": "Nuvek Lior", "text": "Nuvek Lior was a pupil of Orin Tamwyn."},
        {"title": "Dekoford", "text": "Dekoford lies on the river Mosaune."},
        {"title": "Suran Quel", "text": "Suran Quel was born in Kelihaven."},
    ],
}

ENV_RULES = (
    "You write questions for an agent, and the passages that it needs to answer them. Answer with "
    "one JSON object on one line, and nothing else: question, answer, and passages, each with a "
    "title and a text.\n"
    "The question names the title of one passage, word for word, and ends with a question mark. "
    "That passage does not have the answer. It names the title of another passage, and so on, "
    "until one says the answer word for word. At least two passages are needed, and no passage has "
    "both the answer and the title that the question names. The question does not say the answer. "
    "Other passages may be there that are not needed. There are 2 to 16 passages, each about "
    "another thing. The answer is a few words or a year. Everything in a question is invented: "
    "people, towns and works that do not exist.\n"
    "More passages to read one after the other, and more that are not needed, are harder.\n"
    f"{AIM}\n"
    f"{task_request(AgentHistory(0.9), json.dumps(_BASE))}\n"
    f"{json.dumps(_HARDER)}"
)

SEARCH_RULES = (
    "You play a search engine over an encyclopedia. You are told what was asked for. Answer with "
    'one JSON object and nothing else: {"content": "...", "name": "search"}, where content has at '
    "most three passages, one a line: a title, a colon, and one to three sentences of facts. Where "
    "passages are given, repeat those that say most about the queries, word for word. Else write "
    "what an encyclopedia says. Answer no question beyond that."
)

OBSERVATION_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "content": {"type": "string"},
        "name": {"type": "string", "enum": [SEARCH]},
    },
    "required": ["content"],
    "additionalProperties": False,
}
"""What pi_env writes in the place of the search engine."""
