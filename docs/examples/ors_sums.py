"""Sums as an environment of ORS: a hint, two tries, and a reward at the end, 1 or a half.

Runs where the package `ors-sdk` is installed, not in genenv's environment: docs/openenv.md.
"""

from ors import Environment, Server, Split, TextBlock, ToolOutput, tool
from pydantic import BaseModel

COUNTS = {"train": 40, "test": 20}


class Answer(BaseModel):
    sum: str


def said(text, reward=None, finished=False):
    return ToolOutput(blocks=[TextBlock(text=text)], reward=reward, finished=finished)


class Sums(Environment):
    @classmethod
    def list_splits(cls):
        return [Split(name=name, type=name) for name in COUNTS]

    @classmethod
    def list_tasks(cls, split):
        places = range(COUNTS[split])
        pairs = [(1 + place % 9, 1 + place // 9 + 5 * (split == "test")) for place in places]
        return [{"first": one, "second": two, "right": str(one + two)} for one, two in pairs]

    def setup(self):
        self.tries = 0

    def get_prompt(self):
        return [TextBlock(text=f"{self.task_spec['first']} + {self.task_spec['second']} =")]

    @tool
    def hint(self) -> ToolOutput:
        """Say whether the sum has two digits."""
        return said("two digits" if len(self.task_spec["right"]) == 2 else "one digit")

    @tool
    def say(self, answer: Answer) -> ToolOutput:
        """Say the sum; there are two tries."""
        self.tries += 1
        right = answer.sum.strip() == self.task_spec["right"]
        if right or self.tries == 2:
            return said("right" if right else "wrong", right / self.tries, finished=True)
        return said("try again")


app = Server([Sums]).app
