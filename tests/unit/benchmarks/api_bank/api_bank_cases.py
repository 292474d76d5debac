"""A small download in API-Bank's layout, made by hand, and predictions with their verdicts.

The verdicts of `CASES` are those of the official harness, run on these calls and databases.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ANN, BOB = "tok-ann", "tok-bob"
MORNING, NOON = "2023-05-01 10:00:00", "2023-05-02 12:00:00"

ACCOUNTS = {"ann": {"token": ANN}, "bob": {"token": BOB}}
AGENDA = {
    "1": {"username": "ann", "content": "Board meeting", "time": MORNING, "location": "Hall"},
    "2": {"username": "bob", "content": "Dentist visit", "time": NOON, "location": "Main St"},
    "3": {"username": "ann", "content": "Tea party", "time": NOON, "location": "Garden"},
}
REMINDERS = {
    "1": {"username": "ann", "content": "Pay the rent bill", "time": MORNING},
    "2": {"username": "bob", "content": "Call the bank", "time": MORNING},
    "3": {"username": "ann", "content": "Pay the rent today", "time": NOON},
}
DOCUMENTS = [
    ["cats", "and", "dogs", "live", "together"],
    ["the", "care", "of", "cats"],
    ["the", "care", "of", "gardens", "in", "spring"],
    ["trains", "to", "the", "sea"],
    ["bread", "and", "butter"],
]

GOLD: dict[str, dict[str, Any]] = {
    "AddAgenda": {"token": ANN, "content": "Review of the budget", "time": NOON, "location": "R5"},
    "AddReminder": {"token": ANN, "content": "Water the garden plants", "time": NOON},
    "AppointmentRegistration": {"patient_name": "Ann Lee", "date": "2023-04-05",
                                "doctor_name": "Dr. Li"},
    "BookHotel": {"hotel_name": "Grand", "check_in_time": "2023-05-01", "room_count": "2"},
    "Calculator": {"formula": "(2 + 3)*4"},
    "DeleteAgenda": {"token": ANN, "content": "Board meeting", "time": MORNING, "location": "Hall"},
    "DeleteReminder": {"token": ANN, "content": "Pay the rent bill", "time": MORNING},
    "ForgotPassword": {"status": "Forgot Password", "username": "ann", "email": "ann@x.org"},
    "GetToday": {},
    "GetUserToken": {"username": "ann", "password": "secret"},
    "ModifyAgenda": {"token": ANN, "content": "Board meeting", "time": MORNING,
                     "location": "Attic"},
    "ModifyReminder": {"token": ANN, "content": "Pay the rent bill", "time": "2023-06-01 10:00:00"},
    "PlayMusic": {"music_name": "Blue Moon"},
    "QueryAgenda": {"token": ANN, "content": "Board meeting", "time": "2023-07-01 10:00:00",
                    "location": "Hall"},
    "QueryHealthData": {"user_id": "u1", "start_time": "2023-03-01 00:00:00",
                        "end_time": "2023-03-31 00:00:00"},
    "QueryHistoryToday": {"date": "10-06"},
    "QueryReminder": {"token": ANN, "content": "Pay the rent bill", "time": "2023-07-01 10:00:00"},
    "QueryStock": {"stock_code": "ABC", "date": "2023-03-01"},
    "SearchEngine": {"keyword": "care of cats"},
    "SendEmail": {"receiver": "ann@x.org", "subject": "Hello", "content": "See you at noon"},
    "Wiki": {"keyword": "big ben"},
}  # fmt: skip
"""Recorded calls that the official harness accepts, one dialogue each."""

GOLD_OF_OURS: dict[str, dict[str, Any]] = {
    "AddMeeting": {"token": ANN, "meeting_topic": "Project review with Bob",
                   "attendees": "['Ann Lee', 'Bob']"},
    "DeleteScene": {"name": "Party"},
    "RecordHealthData": {"user_id": "u1", "time": MORNING,
                         "health_data": "[{'name': 'pulse', 'value': '80'}, "
                                        "{'name': 'weight', 'value': '70'}]"},
    "TimedSwitch": {"device_id": "77", "time": NOON, "on": "True"},
    "ToolSearcher": {"keywords": "add a meeting"},
    "QueryBalance": {"token": "nobody"},
    "DeleteAlarm": {"token": ANN, "time": MORNING},
    "EmergencyKnowledge": {"symptom": "Cough"},
    "ModifyRegistration": {"appointment_id": "12", "new_appointment_date": "2023-04-05",
                           "new_appointment_doctor": "Dr. Li"},
}  # fmt: skip
"""Recorded calls that it cannot judge, or not here."""

TYPES = {"room_count": "int", "attendees": "list(str)", "health_data": "list", "on": "bool"}
REQUESTS: list[dict[str, Any]] = [
    {
        "requirement": "The weather in New York, by mail",
        "response": "It is clear. I sent a mail to ann@x.org.",
        "apis": [
            {"api_name": "ToolSearcher", "input": {"keywords": "GetWeather"}},
            {
                "api_name": "GetWeatherForCoordinates",
                "input": {"latitude": "40.7128", "longitude": "74.0060"},
            },
            {
                "api_name": "EmailReminder",
                "input": {"content": "Clear sky", "time": NOON, "recipient": "ann@x.org"},
            },
            {"api_name": "MovieRecommendations", "input": {"preferences": ["Action", "Drama"]}},
            {"api_name": "LikeCount", "input": {"post_id": 4}},
        ],
    }
]
TYPES_OF_LEVEL_3 = {
    "latitude": "float",
    "longitude": "float",
    "preferences": "list",
    "post_id": "int",
}
RESPONSE = "The call was made. Is there anything else?"


def spelled(name: str, arguments: dict[str, Any]) -> str:
    """Return a call as the official data spell gold: every value between single quotes."""
    inside = ", ".join(f"{key}='{value}'" for key, value in arguments.items())
    return f"[{name}({inside})]"


def write_download(folder: Path, gold: dict[str, dict[str, Any]] | None = None) -> Path:
    """Return a folder in the official layout with a dialogue for each recorded call."""
    calls = {**GOLD, **GOLD_OF_OURS} if gold is None else gold
    for level in ("level-1-given-desc", "level-2-toolsearcher"):
        for name, arguments in calls.items():
            turns = [
                {"role": "User", "text": "Do it, please"},
                {"role": "API", "api_name": name, "param_dict": arguments},
                {"role": "AI", "text": RESPONSE},
            ]
            _write(
                folder / f"lv1-lv2-samples/{level}/{name}.jsonl", "\n".join(map(json.dumps, turns))
            )
    _write(folder / "init_database/Account.json", json.dumps(ACCOUNTS))
    _write(folder / "init_database/Agenda.json", json.dumps(AGENDA))
    _write(folder / "init_database/Reminder.json", json.dumps(REMINDERS))
    _write(
        folder / "init_database/SearchEngine.json", json.dumps({"tokenized_documents": DOCUMENTS})
    )
    _write(folder / "test-data/level-3.json", json.dumps(REQUESTS))
    called = [(call["api_name"], call["input"]) for one in REQUESTS for call in one["apis"]]
    docs = {"lv1_lv2": _docs(calls.items(), TYPES), "lv3": _docs(called, TYPES_OF_LEVEL_3)}
    _write(folder / "api_docs.json", json.dumps(docs))
    return folder


def _docs(calls: Any, types: dict[str, str]) -> list[Any]:
    return [
        {
            "name": name,
            "input_parameters": {key: {"type": types.get(key, "str")} for key in arguments},
        }
        for name, arguments in calls
    ]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _with(name: str, **changed: Any) -> tuple[str, str]:
    """Return an item's name and its gold call with other values; None leaves one out."""
    kept = {key: value for key, value in {**GOLD[name], **changed}.items() if value is not None}
    return name, spelled(name, kept)


_TOKEN = spelled("GetUserToken", GOLD["GetUserToken"])

CASES: list[tuple[tuple[str, str], bool]] = [
    # Finding the call
    (("GetUserToken", _TOKEN), True),
    (("GetUserToken", f"Sure! API-Request: {_TOKEN} -> done"), True),
    (("GetUserToken", f"First line\n{_TOKEN}\nLast line"), True),
    (("GetUserToken", f"[1] {_TOKEN}"), True),
    (("GetUserToken", f"[{_TOKEN}]"), True),
    (("GetUserToken", f"{_TOKEN} or {_TOKEN}"), True),
    (("GetUserToken", f"{_TOKEN}\n[Other(a='b')]"), True),
    (("GetUserToken", f"[Other(a='b')]\n{_TOKEN}"), False),
    (("GetUserToken", f"[Other(a='b')] {_TOKEN}"), False),
    (("GetUserToken", f"{_TOKEN} [Other(a='b')]"), False),
    (("GetUserToken", f"[f(x)] {_TOKEN}"), False),
    (("GetUserToken", ""), False),
    (("GetUserToken", "[]"), False),
    (("GetUserToken", "[GetUserToken()]"), False),
    (("GetUserToken", _TOKEN[1:]), False),
    (("GetUserToken", _TOKEN[:-1]), False),
    (("GetUserToken", _TOKEN[1:-1]), False),
    (("GetUserToken", _TOKEN.replace("(", " (")), False),
    (("GetUserToken", _TOKEN.replace(")]", ") ]")), False),
    (("GetUserToken", _TOKEN.replace(", ", ",\n")), False),
    (("GetUserToken", _TOKEN.lower()), False),
    (("GetUserToken", _TOKEN.replace("Token", "Tokens")), False),
    (("GetUserToken", '{"name": "GetUserToken", "username": "ann"}'), False),
    (("GetToday", "[GetToday()]"), True),
    (("GetToday", "[GetToday(date='x')]"), False),
    (("GetToday", "[GetToday(today)]"), True),
    # Reading its arguments
    (("GetUserToken", _TOKEN.replace("'", '"')), True),
    (("GetUserToken", "[GetUserToken(username=ann, password=secret)]"), True),
    (("GetUserToken", "[GetUserToken(username = 'ann',password= \"secret\")]"), True),
    (("GetUserToken", "[GetUserToken(password='secret', username='ann')]"), True),
    (("GetUserToken", "[GetUserToken(username='ann' password='secret')]"), True),
    (("GetUserToken", "[GetUserToken(username='ann\", password='secret')]"), True),
    (("GetUserToken", "[GetUserToken('ann', 'secret')]"), False),
    (("GetUserToken", "[GetUserToken(username: 'ann', password: 'secret')]"), False),
    (("GetUserToken", "[GetUserToken(username='ann'', password='secret')]"), True),
    (("GetUserToken", "[GetUserToken(username=''ann', password='secret')]"), False),
    (("GetUserToken", "[GetUserToken(username='', password='secret')]"), False),
    (("GetUserToken", "[GetUserToken(username='x', username='ann', password='secret')]"), True),
    (("GetUserToken", "[GetUserToken(username='ann', password='secret', username='x')]"), False),
    (("GetUserToken", "[GetUserToken(username=['ann'], password='secret')]"), False),
    (("GetUserToken", "[GetUserToken(x.username='ann', password='secret')]"), True),
    # Names and values of arguments
    (_with("GetUserToken", password=None), False),
    (_with("GetUserToken", password="Secret"), False),
    (_with("GetUserToken", password=" secret"), False),
    (_with("GetUserToken", email="ann@x.org"), False),
    (_with("ForgotPassword", email=None), False),
    (_with("ForgotPassword", status="forgot password"), False),
    (_with("BookHotel", room_count="02"), True),
    (_with("BookHotel", room_count="2.0"), False),
    (_with("BookHotel", room_count="-2"), False),
    (_with("BookHotel", room_count=" 2"), False),
    (_with("BookHotel", room_count="two"), False),
    (_with("BookHotel", hotel_name="grand"), False),
    (_with("BookHotel", check_in_time="2023-5-1"), False),
    # Each tool's own comparison
    (_with("AppointmentRegistration", date="2023-4-5"), True),
    (_with("AppointmentRegistration", date=" 2023-04-05 "), True),
    (_with("AppointmentRegistration", date="2023-04-06"), False),
    (_with("AppointmentRegistration", date="April 5"), False),
    (_with("AppointmentRegistration", date="23-04-05"), False),
    (_with("AppointmentRegistration", patient_name=" Ann Lee "), True),
    (_with("AppointmentRegistration", patient_name="ann lee"), False),
    (_with("Calculator", formula="(2+3) * 4"), True),
    (_with("Calculator", formula="4*(2+3)"), False),
    (_with("PlayMusic", music_name=" blue moon"), True),
    (_with("PlayMusic", music_name="bluemoon"), False),
    (_with("QueryHealthData", user_id=" U1", start_time="2023-3-1 0:00:00"), True),
    (_with("QueryHealthData", start_time="2023-03-01"), False),
    (_with("QueryHealthData", end_time="2023-03-31 00:00:01"), False),
    (_with("QueryHistoryToday", date="2023-10-06"), True),
    (_with("QueryHistoryToday", date="10-6"), True),
    (_with("QueryHistoryToday", date="10-07"), False),
    (_with("QueryHistoryToday", date="10/06"), False),
    (_with("QueryStock", stock_code=" abc", date="2023-3-1"), True),
    (_with("QueryStock", stock_code="ABD"), False),
    (_with("SearchEngine", keyword="Care of CATS"), True),
    (_with("SearchEngine", keyword="gardens, care"), True),
    (_with("SearchEngine", keyword="cats of the sea care"), False),
    (_with("SearchEngine", keyword="cats"), False),
    (_with("SearchEngine", keyword="bread and trains"), False),
    (_with("SendEmail", receiver=" ann@X.org", subject=" Hello"), True),
    (_with("SendEmail", receiver="Ann@x.org"), False),
    (_with("SendEmail", content="see you at noon"), False),
    (_with("Wiki", keyword="Big_Ben"), True),
    (_with("Wiki", keyword="bigben"), False),
    # Free text
    (_with("AddAgenda", content="Review the budget"), True),
    (_with("AddAgenda", content="Review of budget cuts today"), False),
    (_with("AddAgenda", content="Review of the budget soon again more"), True),
    (_with("AddAgenda", content="Review of the budget soon again once more"), False),
    (_with("AddAgenda", content="review of the Budget"), False),
    (_with("AddAgenda", content="budget the of Review"), True),
    (_with("AddAgenda", location="r5"), False),
    (_with("AddAgenda", time="2023-5-2 12:00:00"), False),
    (_with("AddReminder", content="water THE garden"), True),
    (_with("AddReminder", content="water"), False),
    (_with("AddReminder", time=MORNING), False),
    # What the call does on the databases
    (_with("AddAgenda", token=BOB), True),
    (_with("AddAgenda", token="nobody"), False),
    (_with("AddReminder", token=BOB), True),
    (_with("AddReminder", token=None), False),
    (_with("DeleteAgenda", content="anything", location="anywhere"), True),
    (_with("DeleteAgenda", content=" "), True),
    (_with("DeleteAgenda", time=NOON), False),
    (_with("DeleteAgenda", token=BOB), False),
    (_with("DeleteAgenda", token=BOB, content="Dentist visit"), True),
    (_with("DeleteReminder", token=BOB), True),
    (_with("DeleteReminder", content="anything"), True),
    (_with("DeleteReminder", content=" "), False),
    (_with("ModifyAgenda", content="Board meeting today"), True),
    (_with("ModifyAgenda", token=BOB), False),
    (_with("ModifyReminder", content="pay the rent bill"), False),
    (_with("ModifyReminder", content="Pay the rent today"), True),
    (_with("ModifyReminder", content="Pay the rent bill now"), False),
    (_with("QueryAgenda", content="Board meeting"), True),
    (_with("QueryAgenda", content="Board meeting today"), False),
    (_with("QueryReminder", content="Pay the rent today"), False),
    (_with("QueryReminder", token=BOB), False),
]
"""An item of level 1 with a prediction, and whether that is right."""
