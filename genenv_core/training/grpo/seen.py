"""The counts of an update of pi_agent, over the sampled tokens that its loss counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Seen:
    """Sums over sampled tokens, and how often the loop visited the rows of each group."""

    tokens: int = 0
    entropy: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: int = 0
    rows: Counter[str] = field(default_factory=Counter[str])

    def add(self, step: list[Seen]) -> None:
        """Add the counts of all processes in one step."""
        for own in step:
            self.tokens += own.tokens
            self.entropy += own.entropy
            self.ratio += own.ratio
            self.clipped += own.clipped
            self.ratio_max = max(self.ratio_max, own.ratio_max)
            self.rows.update(own.rows)

    def metrics(self, *, clips: bool) -> dict[str, float]:
        tokens = max(self.tokens, 1)  # none where all are left out of the loss
        clipped = {"clip_fraction": self.clipped / tokens} if clips else {}
        return {
            "entropy": self.entropy / tokens,
            "ratio_mean": self.ratio / tokens,
            "ratio_max": self.ratio_max,
            **clipped,
        }
