"""The rules by which each official tool compares its arguments; all others compare exactly.

The tools of levels 1 and 2 differ from those of level 3, even where they share a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from genenv_core.benchmarks.api_bank.state import KnownToken, Need, OwnRow, SameDocuments
from genenv_core.benchmarks.api_bank.values import (
    Rule,
    any_text,
    anything,
    compared,
    day,
    day_of_year,
    same_readings,
    same_receiver,
    shared_words,
    shared_words_any_case,
    time,
)


@dataclass(frozen=True, slots=True)
class ToolRules:
    """A tool's rules by argument, what its call needs, and today's names of renamed arguments."""

    rules: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    need: Need | None = None
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])


_STRIPPED = compared(str.strip)
_ANY_CASE = compared(lambda text: text.strip().lower())
_UPPER = compared(lambda text: text.upper().strip())
_NO_SPACES = compared(lambda text: text.replace(" ", ""))
_TITLE = compared(lambda text: text.replace("_", " ").strip().lower())
_WORDS = compared(lambda text: text.lower().split())
_CAMEL_WORDS = compared(lambda text: re.sub(r"([A-Z])", r" \1", text).lower().split())
_DAY, _TIME, _DAY_OF_YEAR = compared(day), compared(time), compared(day_of_year)

_SYMPTOM = ToolRules({"symptom": _ANY_CASE})
_SCENE = ToolRules({"name": _ANY_CASE})
_MEETING = ToolRules({"meeting_topic": shared_words})
_SWITCH = ToolRules({"name": _ANY_CASE, "time": _TIME}, renamed={"device_id": "name"})
_AGENDA: Mapping[str, Rule] = {"token": anything, "content": shared_words}
_REMINDER: Mapping[str, Rule] = {"token": anything, "content": shared_words_any_case}

TOOLS: Mapping[str, ToolRules] = {
    "AddAgenda": ToolRules(_AGENDA, KnownToken()),
    "AddMeeting": _MEETING,
    "AddReminder": ToolRules(_REMINDER, KnownToken()),
    "AppointmentRegistration": ToolRules(
        {"patient_name": _STRIPPED, "date": _DAY, "doctor_name": _STRIPPED}
    ),
    "Calculator": ToolRules({"formula": _NO_SPACES}),
    "CancelRegistration": ToolRules({"appointment_id": _STRIPPED}),
    "CancelTimedSwitch": _SWITCH,
    "DeleteAgenda": ToolRules(
        {"token": anything, "content": anything, "location": anything},
        OwnRow("Agenda", blank_content=True),
    ),
    "DeleteReminder": ToolRules({"token": anything, "content": anything}, OwnRow("Reminder")),
    "DeleteScene": _SCENE,
    "Dictionary": ToolRules({"keyword": _TITLE}),
    "DocumentQA": ToolRules({"url": _STRIPPED, "question": _STRIPPED}),
    "EmergencyKnowledge": _SYMPTOM,
    "ModifyAgenda": ToolRules(_AGENDA, OwnRow("Agenda", blank_content=True)),
    "ModifyMeeting": _MEETING,
    "ModifyRegistration": ToolRules(
        {
            "appointment_id": _STRIPPED,
            "new_appointment_date": _DAY,
            "new_appointment_doctor": _STRIPPED,
        }
    ),
    "ModifyReminder": ToolRules(_REMINDER, OwnRow("Reminder")),
    "PlayMusic": ToolRules({"music_name": _ANY_CASE}),
    "QueryAgenda": ToolRules(_AGENDA, OwnRow("Agenda", same=True, blank_content=True)),
    "QueryHealthData": ToolRules({"user_id": _UPPER, "start_time": _TIME, "end_time": _TIME}),
    "QueryHistoryToday": ToolRules({"date": _DAY_OF_YEAR}),
    "QueryMeeting": _MEETING,
    "QueryRegistration": ToolRules({"patient_name": _STRIPPED, "date": _DAY}),
    "QueryReminder": ToolRules(_REMINDER, OwnRow("Reminder", same=True)),
    "QueryScene": _SCENE,
    "QueryStock": ToolRules({"stock_code": _UPPER, "date": _DAY}),
    "RecordHealthData": ToolRules({"user_id": _UPPER, "time": _TIME, "health_data": same_readings}),
    "SearchEngine": ToolRules({"keyword": anything}, SameDocuments()),
    "SendEmail": ToolRules({"receiver": same_receiver, "subject": _STRIPPED, "content": _STRIPPED}),
    "SymptomSearch": _SYMPTOM,
    "TimedSwitch": _SWITCH,
    # An embedding chooses the tool that the keywords find; it ignores case and spaces.
    "ToolSearcher": ToolRules({"keywords": _WORDS}),
    "Wiki": ToolRules({"keyword": _TITLE}),
}

TOOLS_OF_LEVEL_3: Mapping[str, ToolRules] = {
    "Calculator": ToolRules({"formula": _NO_SPACES}),
    "EmailReminder": ToolRules({"content": any_text}),
    # The official loop splits keywords at capital letters there.
    "ToolSearcher": ToolRules({"keywords": _CAMEL_WORDS}),
}
