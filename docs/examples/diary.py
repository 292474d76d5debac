"""The domain diary: pi_env writes `move ana mon to tue 60 417`; pi_agent moves the meeting."""

import random
from dataclasses import dataclass
from typing import Literal

from genenv_core.domains.kit import Options, Solving, StatefulDomain, Tools, call, task
from genenv_core.types import Rejected, Rejection, TaskDraft, Verdict

DAYS, PEOPLE, HOURS = ("mon", "tue", "wed"), ("ana", "bo", "cy", "dee"), range(9, 17)
Day = Literal["mon", "tue", "wed"]


@dataclass
class Meeting:
    who: str
    day: str
    hour: int


@dataclass
class Calendar:
    meetings: dict[int, Meeting]  # by number

    def free(self, day: str) -> int:
        taken = {one.hour for one in self.meetings.values() if one.day == day}
        return next(hour for hour in HOURS if hour not in taken)


def list_meetings(calendar: Calendar, day: Day) -> str:
    """List the meetings of a day: number, person, hour."""
    held = [f"{n} {one.who} {one.hour}" for n, one in calendar.meetings.items() if one.day == day]
    return ", ".join(held) or "none"


def find_free(calendar: Calendar, day: Day) -> int:
    """Find the first free hour of a day."""
    return calendar.free(day)


def move(calendar: Calendar, number: int, day: Day, hour: int) -> str:
    """Move a meeting to a day and an hour."""
    calendar.meetings[number].day, calendar.meetings[number].hour = day, hour
    return "moved"


class Diary(StatefulDomain[Options]):
    name, version, toolbox = "diary", "1", Tools(list_meetings, find_free, move, state=Calendar)
    pattern = r"move (ana|bo|cy|dee) (mon|tue|wed) to (mon|tue|wed) [1-3] \d{3}"
    agent_rules = "Do what is asked with the calendar's tools; then say that it is done."
    env_rules = "A program is: move WHO DAY to DAY MEETINGS SEED, with 1 to 3 meetings a day."

    def levels(self) -> int:
        return 3  # as many meetings a day

    def draw(self, rng: random.Random, level: int) -> str:
        a, b = rng.sample(DAYS, 2)
        return f"move {rng.choice(PEOPLE)} {a} to {b} {level} {rng.randint(100, 999)}"

    def read(self, text: str) -> TaskDraft | Rejected:
        _, who, a, _, b, level, _ = text.split()
        if a == b:
            return Rejected(Rejection.INCONSISTENT, "a meeting moves to another day")
        rng, numbers = random.Random(text), iter(random.Random(text).sample(range(10, 30), 20))
        others, held = [person for person in PEOPLE if person != who], []
        for day in DAYS:
            people = [who] * (day == a) + [rng.choice(others) for _ in range(int(level))]
            hours = rng.sample(HOURS, len(people))
            held += [(next(numbers), p, day, at) for p, at in zip(people, hours, strict=True)]
        number = next(n for n, person, day, _ in held if (person, day) == (who, a))
        hour = Calendar({n: Meeting(*rest) for n, *rest in held}).free(b)
        request = f"move my meeting with {who} on {a} to the first free hour on {b}"
        right = call(move, number=number, day=b, hour=hour)  # the ground truth are calls
        return task(text, request, right, int(level), held=held, number=number, b=b, hour=hour)

    def state(self, draft: TaskDraft, seed: int) -> Calendar:
        return Calendar({n: Meeting(*rest) for n, *rest in draft.spec["held"]})

    def judge_state(self, draft: TaskDraft, state: Calendar, answer: str) -> Verdict:
        wanted, spec = self.state(draft, 0), draft.spec
        move(wanted, spec["number"], spec["b"], spec["hour"])
        return Verdict(1.0, True) if state == wanted else Verdict(0.0, False, "wrong_state")

    def solve(self, draft: TaskDraft) -> Solving:
        _, who, a, _, b, *_ = draft.program.split()
        listed = yield call(list_meetings, day=a)
        (number,) = [one.split()[0] for one in listed.split(", ") if one.split()[1] == who]
        hour = yield call(find_free, day=b)
        yield call(move, number=int(number), day=b, hour=int(hour))
        return "done"
