"""Draws requests in plain English, each for one call of a function of the catalogue.

A request says some values as they are. Others the agent has to work out: people counted in two
groups, hours that are minutes in the call, a word that stands for one of a list.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from genenv_core.types import JsonObject

Drawn = tuple[str, JsonObject]
"""A request in one sentence, and the arguments of its right call."""

_TOWNS = ("Bergen", "Lisbon", "Krakow", "Turin", "Ghent", "Porto", "Graz", "Lyon", "Split", "Oulu")
_NAMES = ("Mira", "Jonas", "Petra", "Hugo", "Salma", "Nils", "Elena", "Tomas", "Ines", "Viktor")
_ROOMS = ("kitchen", "hall", "study", "bedroom", "cellar", "bathroom", "attic")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_GOODS = {
    "lamp": "lamps", "desk": "desks", "shelf": "shelves", "kettle": "kettles", "rug": "rugs",
    "mirror": "mirrors", "stool": "stools", "vase": "vases",
}  # fmt: skip
"""Things in the singular, and their plural."""

_SMALL = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _some(rng: random.Random, words: Sequence[str], most: int = 3) -> list[str]:
    return rng.sample(words, rng.randint(1, most))


def table(rng: random.Random) -> Drawn:
    """Return a request for a table."""
    place = rng.choice(("Blue Heron", "Old Mill", "Casa Verde", "Salt Yard", "Juniper"))
    adults, children, hour = rng.randint(1, 6), rng.randint(1, 4), rng.randint(6, 9)
    arguments: JsonObject = {
        "restaurant": place, "people": adults + children, "time": f"{hour + 12}:30",
    }  # fmt: skip
    outside = rng.random() < 0.4
    if outside:
        arguments["outdoors"] = True
    return (
        f"Get us a table at {place} for {adults} adults and {children} "
        f"child{'ren' if children > 1 else ''} at half past {hour} in the evening"
        f"{', in the open air' if outside else ''}.",
        arguments,
    )


def recipe(rng: random.Random) -> Drawn:
    """Return a request to adjust a recipe."""
    dish = rng.choice(("lentil soup", "apple cake", "risotto", "goulash", "pancakes", "paella"))
    first, times = rng.randint(2, 6), rng.randint(2, 5)
    without_meat = rng.random() < 0.4
    arguments: JsonObject = {"recipe": dish, "servings": first * times}
    if without_meat:
        arguments["vegetarian"] = True
    return (
        f"The recipe for {dish} serves {first}, and I need {_SMALL[times]} times as much"
        f"{', without any meat' if without_meat else ''}: adjust it.",
        arguments,
    )


def oven(rng: random.Random) -> Drawn:
    """Return a request to start the oven."""
    mode, says = rng.choice((("grill", "grill"), ("fan", "hot air"), ("bake", "ordinary baking")))
    degrees, quarters = rng.randrange(120, 250, 5), rng.randint(1, 7)
    hours, rest = divmod(quarters * 15, 60)
    parts = [f"{hours} hour{'s' if hours > 1 else ''}"] * bool(hours) + [f"{rest} minutes"] * bool(
        rest
    )
    return (
        f"Put the oven on {says} at {degrees} degrees Celsius for {_listed(parts)}.",
        {"mode": mode, "temperature": degrees, "minutes": quarters * 15},
    )


def trains(rng: random.Random) -> Drawn:
    """Return a request for trains."""
    origin, destination = rng.sample(_TOWNS, 2)
    month = rng.randint(1, 12)
    day, adults, children = rng.randint(1, 28), rng.randint(1, 4), rng.randint(0, 3)
    named = _MONTHS[month - 1]
    with_children = f" and {children} child{'ren' if children > 1 else ''}" if children else ""
    return (
        f"Which trains go from {origin} to {destination} on {day} {named} 2027, for {adults} "
        f"adult{'s' if adults > 1 else ''}{with_children or ' and no child'}?",
        {
            "origin": origin,
            "destination": destination,
            "date": f"2027-{month:02}-{day:02}",
            "passengers": {"adults": adults, "children": children},
        },
    )


def car(rng: random.Random) -> Drawn:
    """Return a request for a car."""
    town, weeks, days = rng.choice(_TOWNS), rng.randint(1, 3), rng.randint(1, 6)
    size, says = rng.choice((("small", "the smallest car"), ("van", "a van for our furniture")))
    insured = rng.random() < 0.5
    return (
        f"I want {says} in {town} for {weeks} week{'s' if weeks > 1 else ''} and {days} "
        f"day{'s' if days > 1 else ''}, {'fully insured' if insured else 'with no insurance'}.",
        {"city": town, "days": weeks * 7 + days, "size": size, "insurance": insured},
    )


def money(rng: random.Random) -> Drawn:
    """Return a request to convert money."""
    coins = (("EUR", "euros"), ("USD", "US dollars"), ("CHF", "Swiss francs"), ("JPY", "yen"),
             ("GBP", "British pounds"))  # fmt: skip
    (source, says), (target, wanted) = rng.sample(coins, 2)
    amount = rng.randint(11, 990) + rng.choice((0.25, 0.5, 0.75))
    return (
        f"How many {wanted} do I get for {amount} {says}?",
        {"amount": amount, "source": source, "target": target},
    )


def lights(rng: random.Random) -> Drawn:
    """Return a request to set lights."""
    rooms, (level, says) = _some(rng, _ROOMS), rng.choice(
        ((50, "half"), (25, "a quarter"), (100, "full"), (75, "three quarters"))
    )  # fmt: skip
    arguments: JsonObject = {"rooms": rooms, "brightness": level}
    colour = rng.choice((None, "red", "amber", "green"))
    if colour:
        arguments["colour"] = colour
    return (
        f"Turn the lights in the {_listed(rooms)} to {says} brightness"
        f"{f', in {colour}' if colour else ''}.",
        arguments,
    )


def heating(rng: random.Random) -> Drawn:
    """Return a request to heat a room."""
    room, degrees, more = rng.choice(_ROOMS), rng.randint(14, 19), rng.choice((1.5, 2.5, 3.5))
    return (
        f"The {room} is at {degrees} degrees; heat it to {more} degrees above that.",
        {"room": room, "degrees": degrees + more},
    )


def vacuum(rng: random.Random) -> Drawn:
    """Return a request to clean floors."""
    rooms, quiet = _some(rng, _ROOMS), rng.random() < 0.5
    arguments: JsonObject = {"rooms": rooms}
    if quiet:
        arguments["quiet"] = True
    return (
        f"Have the robot clean the floor of the {_listed(rooms)}"
        f"{', and make little noise' if quiet else ''}.",
        arguments,
    )


def meeting(rng: random.Random) -> Drawn:
    """Return a request for a meeting."""
    people, online = rng.sample(_NAMES, rng.randint(2, 4)), rng.random() < 0.5
    title = rng.choice(("Budget", "Hiring", "Roadmap", "Retrospective", "Contracts", "Inventory"))
    minutes, says = rng.choice(
        ((30, "half an hour"), (90, "an hour and a half"), (120, "two hours"), (45, "45 minutes"))
    )
    return (
        f"Arrange a meeting called {title} with {_listed(people)} for {says}, "
        f"{'as a video call' if online else 'in person'}.",
        {"title": title, "attendees": people, "minutes": minutes, "online": online},
    )


def invoice(rng: random.Random) -> Drawn:
    """Return a request for an invoice."""
    goods, customer = rng.sample(list(_GOODS), rng.randint(1, 3)), f"{rng.choice(_NAMES)} & Sons"
    sold = [(item, rng.randint(2, 9), rng.randint(10, 99) + 0.5) for item in goods]
    said = [f"{count} {_GOODS[item]} at {price} each" for item, count, price in sold]
    lines = [{"item": item, "quantity": count, "price": price} for item, count, price in sold]
    return (
        f"Bill {customer} for {_listed(said)}.",
        {"customer": customer, "lines": lines},
    )


def hours(rng: random.Random) -> Drawn:
    """Return a request to record hours."""
    project = rng.choice(("Harbour", "Falcon", "Meadow", "Quartz", "Beacon"))
    whole, paid = rng.randint(1, 7), rng.random() < 0.5
    return (
        f"Note that I worked {whole} and a half hours on {project}, "
        f"{'which the client pays' if paid else 'which nobody pays for'}.",
        {"project": project, "hours": whole + 0.5, "billable": paid},
    )


def run(rng: random.Random) -> Drawn:
    """Return a request to log a run."""
    laps, metres = rng.randint(3, 15), rng.choice((500, 1500, 2500))
    ground, says = rng.choice((("road", "on the road"), ("trail", "on forest paths"),
                               ("track", "in the stadium")))  # fmt: skip
    minutes = rng.randint(20, 120)
    return (
        f"Log my run: {laps} laps of {metres} metres {says}, in {minutes} minutes.",
        {"distance_km": laps * metres / 1000, "minutes": minutes, "terrain": ground},
    )


def training(rng: random.Random) -> Drawn:
    """Return a request for a plan of workouts."""
    days = sorted(_some(rng, _DAYS), key=_DAYS.index)
    goal, says = rng.choice((("endurance", "last longer"), ("strength", "get stronger"),
                             ("balance", "stand more steadily")))  # fmt: skip
    level, how = rng.choice(((1, "as gently as can be"), (5, "as hard as can be"), (3, "halfway "
                             "between gentle and hard")))  # fmt: skip
    return (
        f"I want to {says}: plan workouts for every {_listed(days)}, {how}.",
        {"goal": goal, "days": days, "intensity": level},
    )


def order(rng: random.Random) -> Drawn:
    """Return a request for goods."""
    goods = rng.sample(list(_GOODS), rng.randint(1, 3))
    wanted = [(item, rng.choice((2, 3, 12, 24))) for item in goods]
    words = {2: "a pair of", 3: "three", 12: "a dozen", 24: "two dozen"}
    said = [f"{words[count]} {_GOODS[item]}" for item, count in wanted]
    street, house = rng.choice(("Mill Lane", "High Street", "Park Road")), rng.randint(2, 80)
    delivery: JsonObject = {"street": street, "number": house}
    express = rng.random() < 0.5
    if express:
        delivery["express"] = True
    return (
        f"Order {_listed(said)}, to be brought to number {house} in {street}"
        f"{', as fast as possible' if express else ''}.",
        {
            "items": [{"name": item, "count": count} for item, count in wanted],
            "delivery": delivery,
        },
    )


def parcel(rng: random.Random) -> Drawn:
    """Return a request to find a parcel."""
    code = f"{''.join(rng.choices('BCDFGHKLMP', k=2))}{rng.randint(10_000, 99_999)}"
    return f"Where is the parcel with the number {code}?", {"number": code}


def area(rng: random.Random) -> Drawn:
    """Return a request for an area."""
    points = [[rng.randint(0, 40), rng.randint(0, 40)] for _ in range(rng.randint(3, 5))]
    said = [f"({x}, {y})" for x, y in points]
    return (
        f"What is the area of the polygon with the corners {_listed(said)}?",
        {"corners": points},
    )
