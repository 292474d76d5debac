"""A domain of parts: pi_env writes `3 km + 40 ft in m`, and pi_agent converts with a calculator."""

import random
import re
from typing import Literal

from pydantic import Field

from genenv_core.domains.kit import Options, SolvedDomain, Solving, Tools, call, judges, task
from genenv_core.types import Rejected, Rejection, TaskDraft, Verdict

METRES = {"m": 1.0, "km": 1000.0, "ft": 0.3048, "mi": 1609.344}


def calculate(left: float, operation: Literal["+", "*", "/"], right: float) -> float:
    """Work out one operation on two numbers, to six digits."""
    if operation == "/":
        return float(f"{left / right:.6g}")
    return float(f"{left + right if operation == '+' else left * right:.6g}")


class UnitsOptions(Options):
    terms: int = Field(default=3, ge=1, le=6)  # most lengths that one task adds


class Units(SolvedDomain[UnitsOptions]):
    name, version, options_type, toolbox = "units", "1", UnitsOptions, Tools(calculate)
    agent_rules = f"Answer with a number and its unit. In metres the units are {METRES}."
    env_rules = "A program adds lengths in m, km, ft or mi and asks for another of these units."
    pattern = r"[1-9]\d? (m|km|ft|mi)( \+ [1-9]\d? (m|km|ft|mi))* in (m|km|ft|mi)"

    def levels(self) -> int:
        return self.options.terms  # a task of more is out of range

    def draw(self, rng: random.Random, level: int) -> str:
        unit, *others = rng.sample(list(METRES), 4)
        lengths = [f"{rng.randint(1, 99)} {rng.choice(others)}" for _ in range(level)]
        return f"{' + '.join(lengths)} in {unit}"

    def read(self, text: str) -> TaskDraft | Rejected:
        lengths, unit = text.split(" in ")
        terms = [(int(n), str(u)) for n, u in re.findall(r"(\d+) (\w+)", lengths)]
        if unit in [u for _, u in terms]:
            return Rejected(Rejection.INCONSISTENT, f"{unit} is asked for and given")
        value = sum(n * METRES[u] for n, u in terms) / METRES[unit]
        prompt, answer = f"How many {unit} are {lengths}?", f"{value:.6g} {unit}"
        return task(text, prompt, answer, len(terms), terms=terms, value=value, unit=unit)

    def judge(self, draft: TaskDraft, answer: str) -> Verdict:
        right = judges.number(answer, draft.spec["value"], unit=draft.spec["unit"], rel_tol=1e-3)
        return judges.softened(right, judges.token_f1(answer, draft.ground_truth))

    def solve(self, draft: TaskDraft) -> Solving:
        terms, unit = draft.spec["terms"], draft.spec["unit"]
        calls = [call(calculate, left=n, operation="*", right=METRES[u]) for n, u in terms]
        total, *rest = map(float, (yield "".join(calls)).split())
        for part in rest:
            total = float((yield call(calculate, left=total, operation="+", right=part)))
        return f"{(yield call(calculate, left=total, operation='/', right=METRES[unit]))} {unit}"
