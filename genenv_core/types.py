"""The vocabulary, read first: the frozen records that domains, engines, stages and tables share.

Index bases: `epoch` counts from 1 (0 is the state after `bootstrap`), `policy_version` from 0 (the
bootstrap checkpoint; version t is what epoch t published), `sample_index`, `turn` and token
positions from 0. Ids sort by (epoch, producing stage, index), because sorted ids prune Parquet row
groups; see `genenv_core.ids`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NotRequired, TypedDict

JsonObject = dict[str, Any]


class Policy(StrEnum):
    """Which of the two policies."""

    AGENT = "agent"
    ENV = "env"


class Message(TypedDict):
    """One chat message, in the shape that chat templates and OpenAI-style APIs read.

    `simulated` marks an observation that pi_env wrote in place of a tool, `error` one that stands
    for tools that failed or took too long. `anew` marks the first message of a prompt with which
    the conversation began anew. Templates do not render these marks. In a finished attempt
    `tool_calls` and `tool_call_id` hold the calls and the ids of the answered ones
    (`genenv_core.play.calls`); the text has the calls too, as the agent wrote them.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    name: NotRequired[str]
    tool_calls: NotRequired[list[JsonObject]]
    tool_call_id: NotRequired[str]
    simulated: NotRequired[bool]
    error: NotRequired[bool]
    anew: NotRequired[bool]


class Flaw(StrEnum):
    """What can be wrong with a task itself; see `genenv_core.play.certificate`."""

    LEAKS_ANSWER = "leaks_answer"
    """The request says the ground truth, or a part of it that the agent has to work out."""
    REJECTS_GROUND_TRUTH = "rejects_ground_truth"
    """The ground truth does not count as a success."""
    ACCEPTS_TRIVIAL = "accepts_trivial"
    """An empty, constant, incomplete or echoed answer counts as a success."""
    ACCEPTS_CANARY = "accepts_canary"
    """A senseless text counts as a success."""
    UNSTEADY_VERDICT = "unsteady_verdict"
    """One and the same transcript gets different verdicts."""
    UNKNOWN_TOOL = "unknown_tool"
    """The right answer calls a tool that does not exist."""
    UNREACHABLE = "unreachable"
    """The domain's own attempt never succeeds."""
    AMBIGUOUS = "ambiguous"
    """The domain's own attempt succeeds by chance: with some seeds of the environment."""
    LEAKS_EARLY = "leaks_early"
    """A tool gives a part of the answer away before the right calls."""


class Rejection(StrEnum):
    """Why a generation of pi_env did not become a task; a flaw has the name of its `Flaw`."""

    UNPARSEABLE = "unparseable"
    OUT_OF_RANGE = "out_of_range"
    INCONSISTENT = "inconsistent"
    TRUNCATED = "truncated"
    DUPLICATE = "duplicate"
    DUPLICATE_OF_HISTORY = "duplicate_of_history"
    IN_HELDOUT = "in_heldout"
    CONTAMINATED = "contaminated"
    ENGINE_ERROR = "engine_error"
    LEAKS_ANSWER = Flaw.LEAKS_ANSWER.value
    REJECTS_GROUND_TRUTH = Flaw.REJECTS_GROUND_TRUTH.value
    ACCEPTS_TRIVIAL = Flaw.ACCEPTS_TRIVIAL.value
    ACCEPTS_CANARY = Flaw.ACCEPTS_CANARY.value
    UNSTEADY_VERDICT = Flaw.UNSTEADY_VERDICT.value
    UNKNOWN_TOOL = Flaw.UNKNOWN_TOOL.value
    UNREACHABLE = Flaw.UNREACHABLE.value
    AMBIGUOUS = Flaw.AMBIGUOUS.value
    LEAKS_EARLY = Flaw.LEAKS_EARLY.value


class TaskSource(StrEnum):
    """Where a task comes from."""

    BASE = "base"
    GENERATED = "generated"
    VALIDATION = "validation"
    TEST = "test"
    TEACHER = "teacher"
    BENCHMARK = "benchmark"


HELDOUT = (TaskSource.VALIDATION, TaskSource.TEST)
"""Sources of tasks that no update ever trains on."""


class TaskChoice(StrEnum):
    """Whether an epoch attempts a task of pi_env, and why."""

    PREDICTED = "predicted"
    """Its predicted success rate is near alpha."""
    RANDOM = "random"
    """The choice drew it by lot."""
    RESERVE = "reserve"
    """An epoch attempts it, in its turn, only to refill groups without a signal."""
    NOT_CHOSEN = "not_chosen"


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    LENGTH = "length"
    ERROR = "error"


class Cause(StrEnum):
    """Whose failure ended an attempt. Only the agent's is a verdict on the agent.

    `agent`: the policy's doing, such as a task that leaves it no room. `environment`: an opening or
    steps that raised or took too long, or a simulator without an observation. `engine`: no
    completion, or a broken one. `run`: somebody stopped the run.
    """

    AGENT = "agent"
    ENVIRONMENT = "environment"
    ENGINE = "engine"
    RUN = "run"

    @property
    def judges(self) -> bool:
        """Return whether such a failure is a verdict on the agent."""
        return self is Cause.AGENT


@dataclass(frozen=True, slots=True)
class TaskDraft:
    """What a domain makes of one program or one data row: a task without an identity.

    `spec` is the evaluation spec, JSON only, enough for `Domain.score` to judge a transcript.
    `program` is the compact text that pi_env wrote (or would have written) for this task; two
    tasks with equal `fingerprint` count as duplicates. `difficulty` is the domain's own measure
    (desk, trails: number of tool calls), `family` a short label for statistics (there `k3`); the
    choice predicts the success of a new task from both. `chance` is how often a guess is right, 0
    to below 1: 1/2 for yes or no, 0 where no guess can be right. The curriculum judges the skill
    above it.
    """

    prompt: str
    spec: JsonObject
    ground_truth: str
    program: str
    family: str
    difficulty: float
    fingerprint: str
    chance: float = 0.0


@dataclass(frozen=True, slots=True)
class Rejected:
    """A generation that is no task, with its reason and a short detail for people."""

    reason: Rejection
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A task with its identity and provenance; one row of the table `tasks`."""

    task_id: str
    source: TaskSource
    draft: TaskDraft
    context_id: str = ""


@dataclass(frozen=True, slots=True)
class AgentHistory:
    """The agent's recent success statistics, as pi_env sees them.

    `success_rate` is the skill over the previous epoch's valid new tasks (None before the first
    epoch): p_hat above the chance of a guess, so p_hat itself where no guess can be right.
    `by_family` maps a family to (successes, attempts), guesses included. `by_domain` has the same
    for each domain, its families without the domain's name; empty in a run of one domain.
    """

    success_rate: float | None = None
    by_family: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    by_domain: dict[str, AgentHistory] = field(default_factory=dict[str, "AgentHistory"])


@dataclass(frozen=True, slots=True)
class Context:
    """The context of one batch of generations: the agent's history and a base task.

    pi_env reads the turns of `examples` before its request (`genenv_core.play.asked`).
    """

    context_id: str
    base_task_id: str
    base: TaskDraft
    history: AgentHistory
    examples: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample: shared by every request of one call.

    Temperature 0 means greedy. `max_tokens` bounds one completion. `stop_token_ids` end it; the
    stop token is part of the completion and has a logprob.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Grammar:
    """The form of a completion: a JSON schema, a regular expression, or a grammar in EBNF."""

    kind: Literal["json", "regex", "grammar"]
    text: str


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One completion to sample: prompt token ids and the seed that alone decides its randomness.

    With a `grammar` the engine samples only what it allows, and the logprobs are those of the
    constrained distribution. An engine that cannot do that raises `EngineError`.
    """

    prompt_ids: tuple[int, ...]
    seed: int
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """Token ids sampled in one call, with the logprob of each.

    `logprobs[i]` is the natural-log probability of `token_ids[i]` under the distribution after
    temperature and before top-p truncation, float32; greedy sampling reports temperature 1.
    `lasting` says of a failed completion that the same request would fail again.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    error: str = ""
    lasting: bool = False

    @property
    def passing(self) -> bool:
        """Return whether it failed and another try may succeed."""
        return self.finish_reason is FinishReason.ERROR and not self.lasting


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a model."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Said:
    """What a model says in one turn: its text without the calls, and the calls in order.

    `malformed` are texts that look like calls and do not parse.
    """

    text: str
    calls: tuple[Call, ...] = ()
    malformed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """The environment's answer to one completion.

    The player appends `messages` to the transcript (tool results, a user turn); `done` ends the
    episode. `simulated` marks observations that a model wrote instead of executed code, `failed`
    those that stand for tools without an answer; the messages get both marks. `cause` says whose
    failure a failed one is. An error that a tool reports to the agent is an observation like any
    other. `anew` begins the conversation anew: the messages are the whole prompt of a new sequence.
    They repeat what the agent should know from before, as it sees no earlier message.
    """

    messages: tuple[Message, ...] = ()
    done: bool = True
    simulated: bool = False
    failed: bool = False
    cause: Cause = Cause.ENVIRONMENT
    anew: bool = False

    @property
    def begins_anew(self) -> bool:
        """Return whether the agent reads these messages alone next: after the end it reads none."""
        return self.anew and not self.done


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a transcript.

    `reward` is R_agent in [0, 1]. `success` follows from the raw outcome, never from a shaped
    reward. `failure` names what went wrong in a few words, '' after a success.
    """

    reward: float
    success: bool
    failure: str = ""


@dataclass(frozen=True, slots=True)
class FurtherSequence:
    """One sequence of an attempt after its first; its ids, logprobs and mask are as in `Rollout`.

    `turn` is the first turn of the attempt in it, `message` the place of its first message in the
    attempt's; both count from 0. Its messages end where those of the next sequence begin.
    `parent` is the number of the sequence whose messages its prompt was made from, 0 for the
    attempt's first one, None for a prompt that was made from none. `branch_turn` is the turn of the
    attempt at which it left the parent, 0 without one: its prompt was made after the parent's turns
    with a lower number.
    """

    turn: int
    message: int
    parent: int | None
    branch_turn: int
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    loss_mask: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt of the agent at one task, all turns.

    `token_ids`, `logprobs` and `loss_mask` cover what follows the first prompt and are equally
    long: mask 1 marks tokens the agent sampled, 0 marks observation tokens, whose logprob is 0.0.
    All three are empty for a model that gives no token ids; `usage` then has the tokens that it
    read in the first prompt, and those that it wrote. `messages` is the whole transcript including
    the first prompt's messages. `error` says what broke the attempt and `cause` whose failure that
    was; '' and None where it ran to its end. Where the conversation began anew, these ids are those
    of the first sequence, and `more` are the others in order; `messages` and `turns` are of all of
    them.
    """

    task_id: str
    sample_index: int
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    loss_mask: tuple[int, ...]
    messages: tuple[Message, ...]
    turns: int
    finish_reason: FinishReason
    error: str = ""
    usage: tuple[int, int] | None = None
    cause: Cause | None = None
    more: tuple[FurtherSequence, ...] = ()

    @property
    def sequences(self) -> tuple[Rollout | FurtherSequence, ...]:
        """Return all sequences in order: the first one is the attempt itself."""
        return (self, *self.more)

    @property
    def sampled(self) -> int:
        """Return how many tokens the agent sampled, in all sequences."""
        return sum(sum(one.loss_mask) for one in self.sequences)

    @property
    def lost(self) -> bool:
        """Return whether the attempt says nothing about the agent, so that there is no verdict."""
        return self.cause is not None and not self.cause.judges

    @property
    def said(self) -> str:
        """Return the agent's texts of all turns, which end the messages."""
        texts = [m["content"] for m in self.messages if m["role"] == "assistant"]
        return "\n".join(texts[len(texts) - self.turns :])
