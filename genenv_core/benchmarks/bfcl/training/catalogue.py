"""genenv's own functions, as BFCL describes functions: drawn training requests use no others."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import genenv_core.benchmarks.bfcl.training.requests as requests
from genenv_core.types import JsonObject


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A function, and what draws a request for it together with the arguments of the right call."""

    function: JsonObject
    draw: Callable[[random.Random], requests.Drawn]


def _function(
    name: str,
    says: str,
    properties: Mapping[str, JsonObject],
    optional: Sequence[str] = (),
) -> JsonObject:
    needed = [key for key in properties if key not in optional]
    parameters = {"type": "dict", "properties": dict(properties), "required": needed}
    return {"name": name, "description": says, "parameters": parameters}


def _of(kind: str, says: str, **more: object) -> JsonObject:
    return {"type": kind, "description": says, **more}


def _list(says: str, element: str = "string", **more: object) -> JsonObject:
    return {"type": "array", "description": says, "items": {"type": element, **more}}


_TEXT, _WHOLE, _NUMBER, _TRUTH = "string", "integer", "float", "boolean"
_COINS = ["EUR", "USD", "CHF", "JPY", "GBP"]

_ENTRIES = (
    CatalogueEntry(_function("restaurants.book_table", "Books a table for an evening.", {
        "restaurant": _of(_TEXT, "Its name."),
        "people": _of(_WHOLE, "How many come, children too."),
        "time": _of(_TEXT, "In 24 hours, as HH:MM."),
        "outdoors": _of(_TRUTH, "Whether to sit outside.", default=False),
    }, ["outdoors"]), requests.table),
    CatalogueEntry(_function("scale_recipe", "Rewrites a recipe for other servings.", {
        "recipe": _of(_TEXT, "Its name."),
        "servings": _of(_WHOLE, "The servings wanted."),
        "vegetarian": _of(_TRUTH, "Whether to replace meat.", default=False),
    }, ["vegetarian"]), requests.recipe),
    CatalogueEntry(_function("kitchen.set_oven", "Starts the oven.", {
        "mode": _of(_TEXT, "How it heats; fan is hot air.", enum=["bake", "grill", "fan"]),
        "temperature": _of(_WHOLE, "In degrees Celsius."),
        "minutes": _of(_WHOLE, "How long."),
    }), requests.oven),
    CatalogueEntry(_function("find_trains", "Lists trains between two towns.", {
        "origin": _of(_TEXT, "Where they leave."),
        "destination": _of(_TEXT, "Where they arrive."),
        "date": _of(_TEXT, "As YYYY-MM-DD."),
        "passengers": _of("dict", "Who travels.", properties={
            "adults": _of(_WHOLE, "How many adults."),
            "children": _of(_WHOLE, "How many children."),
        }, required=["adults", "children"]),
    }), requests.trains),
    CatalogueEntry(_function("travel.rent_car", "Rents a car.", {
        "city": _of(_TEXT, "Where."),
        "days": _of(_WHOLE, "How many days."),
        "size": _of(_TEXT, "Of the car.", enum=["small", "family", "van"]),
        "insurance": _of(_TRUTH, "Whether it is insured."),
    }), requests.car),
    CatalogueEntry(_function("convert_money", "Converts an amount at today's rate.", {
        "amount": _of(_NUMBER, "How much."),
        "source": _of(_TEXT, "The currency of the amount.", enum=_COINS),
        "target": _of(_TEXT, "The currency wanted.", enum=_COINS),
    }), requests.money),
    CatalogueEntry(_function("home.set_lights", "Sets the lights of rooms.", {
        "rooms": _list("Which rooms."),
        "brightness": _of(_WHOLE, "In percent."),
        "colour": _of(_TEXT, "Of the light.", default="white"),
    }, ["colour"]), requests.lights),
    CatalogueEntry(_function("set_heating", "Sets the temperature of a room.", {
        "room": _of(_TEXT, "Which room."),
        "degrees": _of(_NUMBER, "In degrees Celsius."),
    }), requests.heating),
    CatalogueEntry(_function("home.start_vacuum", "Sends the cleaning robot.", {
        "rooms": _list("Which rooms."),
        "quiet": _of(_TRUTH, "Whether it goes slowly.", default=False),
    }, ["quiet"]), requests.vacuum),
    CatalogueEntry(_function("create_meeting", "Invites people to a meeting.", {
        "title": _of(_TEXT, "What it is called."),
        "attendees": _list("First names, as they were said."),
        "minutes": _of(_WHOLE, "How long."),
        "online": _of(_TRUTH, "Whether it is a video call."),
    }), requests.meeting),
    CatalogueEntry(_function("office.send_invoice", "Writes and sends an invoice.", {
        "customer": _of(_TEXT, "Who pays."),
        "lines": _list("What was sold.", "dict", properties={
            "item": _of(_TEXT, "What, in the singular."),
            "quantity": _of(_WHOLE, "How many."),
            "price": _of(_NUMBER, "Of one."),
        }, required=["item", "quantity", "price"]),
    }), requests.invoice),
    CatalogueEntry(_function("record_hours", "Records hours of work.", {
        "project": _of(_TEXT, "For which project."),
        "hours": _of(_NUMBER, "How many."),
        "billable": _of(_TRUTH, "Whether a client pays."),
    }), requests.hours),
    CatalogueEntry(_function("log_run", "Records a run.", {
        "distance_km": _of(_NUMBER, "In kilometres."),
        "minutes": _of(_WHOLE, "How long."),
        "terrain": _of(_TEXT, "Where.", enum=["road", "trail", "track"]),
    }), requests.run),
    CatalogueEntry(_function("sport.plan_training", "Plans workouts for a week.", {
        "goal": _of(_TEXT, "What for.", enum=["endurance", "strength", "balance"]),
        "days": _list("Weekdays, in order."),
        "intensity": _of(_WHOLE, "From 1, gentle, to 5, hard."),
    }), requests.training),
    CatalogueEntry(_function("shop.order_items", "Orders goods.", {
        "items": _list("What to order.", "dict", properties={
            "name": _of(_TEXT, "What, in the singular."),
            "count": _of(_WHOLE, "How many."),
        }, required=["name", "count"]),
        "delivery": _of("dict", "Where to.", properties={
            "street": _of(_TEXT, "The street alone."),
            "number": _of(_WHOLE, "Of the house."),
            "express": _of(_TRUTH, "Whether it is urgent.", default=False),
        }, required=["street", "number"]),
    }), requests.order),
    CatalogueEntry(_function("track_parcel", "Says where a parcel is.", {
        "number": _of(_TEXT, "Its number."),
    }), requests.parcel),
    CatalogueEntry(_function("geometry.polygon_area", "Computes a polygon's area.", {
        "corners": {"type": "array", "description": "Pairs [x, y] in order.", "items": {
            "type": "array", "items": {"type": "integer"}}},
    }), requests.area),
)  # fmt: skip

CATALOGUE: dict[str, CatalogueEntry] = {entry.function["name"]: entry for entry in _ENTRIES}
"""By the function's name."""
