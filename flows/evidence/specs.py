"""The comparisons behind the findings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flows.evidence.teacher import write_teacher

ALPHAS = (0.3, 0.5, 0.7)


@dataclass(frozen=True)
class Spec:
    """One comparison: its name here, the preset, epochs and seeds, and the arms."""

    name: str
    preset: str
    epochs: int
    seeds: tuple[int, ...]
    arms: dict[str, dict[str, Any]]

    def write(self, folder: Path) -> Path:
        """Write a file for `genenv compare`, and return its path."""
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
    teacher = folder / "teacher-desk.jsonl"
    write_teacher("quickstart", epochs[0], teacher)
    few: dict[str, dict[str, Any]] = {"genenv": {}, "random": {}, "static": {}}
    offline = {"arm": "offline", "teacher": {"file": str(teacher)}}
    return [
        Spec("desk", "quickstart", epochs[0], seeds, {**few, "offline": offline, "base": {}}),
        Spec("alphas", "quickstart", epochs[0], seeds[:3], {f"alpha={a}": {} for a in ALPHAS}),
        Spec("trails", "trails", epochs[1], seeds, few),
    ]
