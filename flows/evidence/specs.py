"""The comparisons that the findings are read from, and the teacher's file of the arm `offline`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from genenv_core.config.load import resolve
from genenv_core.domains.protocol import SeedData
from genenv_core.domains.registry import get_domain
from genenv_core.types import TaskDraft

ALPHAS = (0.3, 0.5, 0.7)

TEACHER_SEED = 7
"""Not a seed of any run."""


@dataclass(frozen=True)
class Spec:
    """One comparison: its name here, the preset, epochs and seeds, and the arms."""

    name: str
    preset: str
    epochs: int
    seeds: tuple[int, ...]
    arms: dict[str, dict[str, Any]]

    def write(self, folder: Path) -> Path:
        """Write it as a file for `genenv compare`, and return that."""
        values = {
            "base": self.preset,
            "set": {"epochs": self.epochs, "tracking": {"enabled": False}},
            "arms": self.arms,
            "seeds": list(self.seeds),
        }
        path = folder / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
        return path


def specs(folder: Path, seeds: tuple[int, ...], epochs: tuple[int, int]) -> list[Spec]:
    """Return the comparisons on desk and trails, and that of alphas on the first three seeds."""
    teacher = write_teacher("quickstart", epochs[0], folder / "teacher-desk.jsonl")
    few: dict[str, dict[str, Any]] = {"genenv": {}, "random": {}, "static": {}}
    offline = {"arm": "offline", "teacher": {"file": str(teacher)}}
    return [
        Spec("desk", "quickstart", epochs[0], seeds, {**few, "offline": offline, "base": {}}),
        Spec("alphas", "quickstart", epochs[0], seeds[:3], {f"alpha={a}": {} for a in ALPHAS}),
        Spec("trails", "trails", epochs[1], seeds, few),
    ]


def write_teacher(preset: str, epochs: int, path: Path) -> Path:
    """Write new programs for every epoch, all difficulties in equal shares, as a teacher would.

    It knows the domain's rules and not the agent: the data is good, and made once.
    """
    config = resolve(preset)
    domain = get_domain(config.domain.name, config.domain.options)
    assert isinstance(domain, SeedData)
    wanted = config.generation.tasks * epochs
    programs: dict[str, None] = {}
    for _, text in domain.env_examples(TEACHER_SEED, 4 * wanted, 0.0):
        (draft,) = domain.parse(text)
        if isinstance(draft, TaskDraft) and len(programs) < wanted:
            programs[draft.program] = None
    lines = [json.dumps({"program": program}) for program in programs]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
