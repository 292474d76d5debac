"""ALFWorld as a domain: its games to evaluate on, and the games of its train split to train on.

pi_env writes no world. It chooses a train game, and how many commands of the game's walkthrough
genenv carries out before the agent begins. The more it carries out, the easier is the rest.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from functools import cached_property

from genenv_core.benchmarks.alfworld import BENCHMARK
from genenv_core.benchmarks.alfworld.games import GameError, interpreter
from genenv_core.benchmarks.alfworld.loading import goal_of, walkthrough_of
from genenv_core.benchmarks.alfworld.playing import Household
from genenv_core.benchmarks.alfworld.suite import Alfworld
from genenv_core.benchmarks.alfworld.training.games import (
    END,
    TrainGames,
    call_of,
    calls,
    chosen,
    id_of,
    program_of,
    read_spec,
    world_of,
)
from genenv_core.benchmarks.training.benchmark_domain import ITEM, BenchmarkDomain, BenchmarkOptions
from genenv_core.domains.kit.known_items import KnownItems
from genenv_core.domains.parts import (
    AIM,
    env_request,
    env_weights,
    in_heldout,
    too_few,
    with_rules,
)
from genenv_core.domains.protocol import SeedExample, SolutionTurn
from genenv_core.errors import ConfigError, DataError
from genenv_core.ids import seed_from
from genenv_core.types import (
    AgentHistory,
    Call,
    Context,
    Grammar,
    JsonObject,
    Message,
    Rejected,
    Rejection,
    TaskDraft,
)

OFFERED = 8
"""Games that a prompt offers to pi_env; the game of the base task is one of them."""

HARDEST = 6
"""Most commands that a right answer in pi_env's seed data leaves to the agent."""

RULES = (
    "You choose tasks for an agent that plays text games about a house, with one command a turn. A "
    "task is a game, and how many commands of its known solution are already carried out when the "
    "agent begins. The more are done, the easier the task. Answer with one JSON object and nothing "
    'else: {"game": the name of a game of the list, "done": a number from 0 to one less than the '
    "number of its commands}. " + AIM
)


class AlfworldOptions(BenchmarkOptions):
    """Options of the domain alfworld."""

    admissible: bool = False
    """Whether each observation lists the commands that the game takes there; results record this
    option."""


class AlfworldDomain(BenchmarkDomain[AlfworldOptions]):
    """The domain: items are games of seen and unseen rooms, tasks are games of the train split."""

    benchmark = BENCHMARK
    options_type = AlfworldOptions
    code_version = "1"

    def __init__(self, options: AlfworldOptions) -> None:
        """Read the games; raises ConfigError without them, or without the packages to play them."""
        super().__init__(options)
        try:
            interpreter()
        except GameError as error:
            raise ConfigError(str(error)) from error
        assert isinstance(self.suite, Alfworld)
        self._games = self.suite
        self._train = TrainGames(self.suite)
        self._items = {item: group for item, group in self.suite.items.items() if group != "train"}

    def protocol(self) -> JsonObject:
        """Return the options that a result records beside its score."""
        return {"admissible": self.options.admissible}

    def items(self) -> list[TaskDraft]:
        """Return the games of seen and unseen rooms."""
        return [self._draft(item, group) for item, group in self._items.items()]

    def item(self, item: str) -> Household:
        """Return the game with this id, to play as the options say."""
        return self._household(item, None)

    def made(self, spec: JsonObject) -> Household:
        """Return a train game after its first commands; raises DomainError for a broken spec."""
        game, before, _ = read_spec(spec)
        self._train.path(game)
        return self._household(id_of(game), before)

    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return tasks of train games; every second game's first task begins after some commands.

        Raises ConfigError where there are fewer than `count`.
        """
        return self._drawn(seed, count, heldout=False)

    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return tasks of held-out games, each from its beginning while there are enough games.

        Raises ConfigError where there are fewer than `count`.
        """
        return self._drawn(seed, count, heldout=True)

    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt: games to choose from, the agent's success, and a base task."""
        return self._env_prompt(context.history, context.base, self._offered_to(context))

    def env_grammar(self, context: Context) -> Grammar:
        """Return the JSON schema of a generation that chooses one of the games in the prompt."""
        games = self._offered_to(context)
        schema: JsonObject = {
            "type": "object",
            "properties": {
                "game": {"enum": games},
                "done": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": max(map(self._train.length, games)) - 1,
                },
            },
            "required": ["game", "done"],
            "additionalProperties": False,
        }
        return Grammar("json", json.dumps(schema))

    def read(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the task that a JSON object chooses, or why it chooses no task.

        It plays the remaining commands of the walkthrough, which have to win the game.
        """
        choice = chosen(text)
        if isinstance(choice, Rejected):
            return [choice]
        try:
            return [self._checked(*choice)]
        except GameError as error:
            return [Rejected(Rejection.ENGINE_ERROR, str(error)[:200])]
        except DataError as error:
            return [Rejected(Rejection.INCONSISTENT, str(error)[:200])]

    def calls_of(self, draft: TaskDraft) -> list[Call]:
        """Return the remaining commands of the walkthrough, as calls."""
        item = draft.spec.get(ITEM)
        if item is not None:
            return calls(walkthrough_of(self._games.games[str(item)].path))
        return calls(read_spec(draft.spec)[2])

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return a turn for each remaining command; raises DomainError for a broken spec."""
        return [SolutionTurn(call_of(command)) for command in read_spec(draft.spec)[2]]

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return texts that answer nothing, one `look`, and the solution less its last command."""
        left = [] if ITEM in draft.spec else read_spec(draft.spec)[2]
        begun = "".join(map(call_of, left[:-1]))
        return [*super().trivial_answers(draft), begun, call_of("look")]

    def agent_examples(self, seed: int, count: int) -> list[SeedExample]:
        """Return train games after some of their commands, each with the next command."""
        rng = random.Random(seed_from("alfworld", "agent_examples", seed))
        tasks = self._train.tasks(rng, self._train.open, self._admits, whole=False)
        known = list(itertools.islice(tasks, count))
        if not known and count:
            raise ConfigError("alfworld: this download has no train game to make examples of")
        drawn = [*known, *rng.choices(known, k=count - len(known))] if known else []
        return [(self.agent_messages(task), self.solution(task)[0].says) for task in drawn]

    def env_examples(self, seed: int, count: int, easy_skew: float) -> list[SeedExample]:
        """Return prompts of pi_env, each with a choice of an offered game and few commands left."""
        rng = random.Random(seed_from("alfworld", "env_examples", seed))
        weights = env_weights(HARDEST, easy_skew)
        examples: list[SeedExample] = []
        while len(examples) < count:
            rate = None if rng.random() < 0.1 else rng.randint(0, 10) / 10
            base = self._train.task(rng.choice(self._train.open), 0)
            offer = self._offer(rng, base)
            game, left = rng.choice(offer), rng.choices(range(1, HARDEST + 1), weights)[0]
            length = self._train.length(game)
            done = max(0, length - left)
            if length and self._admits(self._train.task(game, done)):
                prompt = self._env_prompt(AgentHistory(success_rate=rate), base, offer)
                examples.append((prompt, program_of(game, done)))
        return examples

    def _draft(self, item: str, group: str) -> TaskDraft:
        """Return an item. Its prompt is the goal: only the running game says how it opens."""
        path = self._games.games[item].path
        return TaskDraft(
            prompt=goal_of(path),
            spec={ITEM: item},
            ground_truth="",
            program="",
            family=group,
            difficulty=float(len(walkthrough_of(path))),
            fingerprint=f"{self.name} {item}",
        )

    def _household(self, item: str, before: Sequence[str] | None) -> Household:
        return self._games.playable(
            item,
            strict=self.mode == "strict",
            admissible=self.options.admissible,
            before=before,
        )

    @cached_property
    def _known(self) -> KnownItems:
        """The walkthroughs of the items, without their words: games of one kind share these."""
        paths = {item: self._games.games[item].path for item in self._items}
        return KnownItems((item, "", calls(walkthrough_of(path))) for item, path in paths.items())

    @cached_property
    def _worlds(self) -> dict[str, str]:
        """The item with each house and goal, by the digest of the two."""
        return {world_of(self._games.games[item].path): item for item in self._items}

    def _unless_known(self, draft: TaskDraft) -> TaskDraft | Rejected:
        item = self._item_like(draft.spec["game"])
        if item:
            return Rejected(Rejection.CONTAMINATED, f"its house and goal are those of item {item}")
        return super()._unless_known(draft)

    def _item_like(self, game: str) -> str:
        """Return the item that has the house and goal of a train game, '' without such an item."""
        return self._worlds.get(world_of(self._train.path(game)), "")

    def _admits(self, task: TaskDraft) -> bool:
        return isinstance(self._unless_known(task), TaskDraft)

    def _drawn(self, seed: int, count: int, *, heldout: bool) -> list[TaskDraft]:
        side = "heldout" if heldout else "base"
        rng = random.Random(seed_from("alfworld", side, seed))
        games = self._train.heldout if heldout else self._train.open
        tasks = self._train.tasks(rng, games, self._admits, whole=heldout)
        drafts = list(itertools.islice(tasks, count))
        if len(drafts) < count:
            found = f"alfworld: the train split of this download has {len(drafts)}"
            more = "download json_2.1.1/train"
            raise too_few(found, len(drafts), count, heldout=heldout, bounds="", more=more)
        return drafts

    def _checked(self, game: str, done: int) -> TaskDraft | Rejected:
        """Return the task if its remaining commands win; raises GameError."""
        for item in (game, f"{game}{END}"):
            if item in self._items:
                return Rejected(Rejection.CONTAMINATED, f"it is the item {item[:100]}")
        if not self._train.knows(game):
            return Rejected(Rejection.OUT_OF_RANGE, f"there is no train game {game[:100]!r}")
        if in_heldout(game):
            return Rejected(Rejection.IN_HELDOUT, f"{game[:100]} is held out")
        walk = self._train.walk(game)
        if not 0 <= done < len(walk):
            return Rejected(Rejection.OUT_OF_RANGE, f"done is not in 0..{len(walk) - 1}")
        task = self._train.task(game, done)
        verdict = self.made(task.spec).judge(walk[done:], self.mode)
        if verdict.valid is None:
            return Rejected(Rejection.ENGINE_ERROR, verdict.reason[:200])
        if not verdict.valid or verdict.parts["steps"] < len(walk) - done:
            why = verdict.reason or f"won after {verdict.parts['steps']} commands"
            return Rejected(Rejection.REJECTS_GROUND_TRUTH, f"the walkthrough: {why}")
        return task

    def _offered_to(self, context: Context) -> list[str]:
        rng = random.Random(seed_from("alfworld", "offer", context.context_id))
        return self._offer(rng, context.base)

    def _offer(self, rng: random.Random, base: TaskDraft) -> list[str]:
        """Return the games that pi_env may choose, sorted."""
        games = self._train.open
        own = [game for game in games if game == base.spec.get("game")]
        others = (game for game in rng.sample(games, len(games)) if game not in own)
        fit = (game for game in others if self._train.length(game) and not self._item_like(game))
        return sorted([*own, *itertools.islice(fit, OFFERED - len(own))])

    def _env_prompt(
        self, history: AgentHistory, base: TaskDraft, offer: Sequence[str]
    ) -> list[Message]:
        example = f"{env_request(0.9, program_of(offer[0], 1))}\n{program_of(offer[-1], 0)}"
        lines = list(map(self._train.shown, offer))
        if history.by_family:
            families = sorted(history.by_family.items())
            rates = (f"{family} {right}/{tries}" for family, (right, tries) in families)
            lines.append(f"success by kind: {', '.join(rates)}")
        lines.append(env_request(history.success_rate, base.program))
        return with_rules(f"{RULES}\n{example}", "\n".join(lines))
