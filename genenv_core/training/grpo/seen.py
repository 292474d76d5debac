"""What an update of pi_agent saw of the sampled tokens that count in its loss."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Seen:
    """What the loop saw: sums over sampled tokens."""

    tokens: int = 0
    entropy: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: int = 0
    rows: Counter[str] = field(default_factory=Counter[str])

    def add(self, step: list[Seen]) -> None:
        """Add what each process saw of one step."""
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
