"""Checks what a domain's methods return to a stage, and names the method of a fault.

Without the check, a fault would end a stage as an error of whatever used the value, such as
"'NoneType' object is not iterable". `genenv domain check` finds the same faults by the same rules.
"""

from __future__ import annotations

import json
import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise, takewhile
from numbers import Real
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from genenv_core.canonical import no_json
from genenv_core.domains.protocol import Domain, EmbedsTasks
from genenv_core.domains.steps import FAILURES, error_line, storable
from genenv_core.errors import DomainError, GenenvError, one_line
from genenv_core.importing import HOME
from genenv_core.types import (
    AgentHistory,
    Context,
    Message,
    Rejected,
    Rejection,
    TaskDraft,
    Verdict,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHOWN = 100
"""Most characters of a value that an error shows."""

VECTORS = "return a list of finite numbers for each request, all lists equally long"

_SAID = 600
"""Most characters of an error that names its own place."""

_FOREIGN = (str(HOME / "genenv_core"), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
"""Folders whose code is genenv's own or a library's, not the author's."""
_CHECKING = str(HOME / "genenv_core" / "play" / "checking")


class Wrong(NamedTuple):
    """What a method returned or raised, and what to do."""

    found: str
    remedy: str


def shown(value: object) -> str:
    """Return a value as people read it, cut to `SHOWN` characters."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def raised(error: BaseException) -> str:
    """Return an error in words, with the last line of the author's own code on its way."""
    if isinstance(error, GenenvError):  # says itself where, but for the line of its cause
        cause = error.__cause__
        line = "" if cause is None else _last_own(list(traceback.walk_tb(cause.__traceback__)))
        return f"raised {type(error).__name__}: {one_line(error, _SAID)}{line}"
    frames = traceback.walk_tb(error.__traceback__)
    return f"raised {error_line(error)}{_last_own(list(frames))}"


def line_of(frame: FrameType | None) -> str:
    """Return the line of the author's code that runs now; '' if only other code runs."""
    inner = takewhile(
        lambda at: not at[0].f_code.co_filename.startswith(_CHECKING), traceback.walk_stack(frame)
    )
    return _last_own(list(inner)[::-1])


def _last_own(frames: Sequence[tuple[FrameType, int]]) -> str:
    """Return the innermost line of the author's own code, '' without one."""
    for frame, line in reversed(frames):
        file = frame.f_code.co_filename
        if not file.startswith((*_FOREIGN, "<")):
            return f" ({Path(file).name}, line {line})"
    return ""


def wrong_verdict(verdict: object) -> Wrong | None:
    """Return what is wrong with the result of `score`, None if nothing is."""
    if not isinstance(verdict, Verdict):
        return Wrong(f"returned {shown(verdict)}", "return Verdict(reward, success, why)")
    reward: Any = verdict.reward
    number = isinstance(reward, int | float) and not isinstance(reward, bool)
    if not number or not 0 <= reward <= 1:
        remedy = f"a reward is from 0 to 1{plain(reward)}"
        return Wrong(f"gives the reward {shown(reward)}", remedy)
    success: Any = verdict.success
    if not isinstance(success, bool):
        return Wrong(f"gives the success {shown(success)}", "it is True or False: bool(...)")
    failure: Any = verdict.failure
    if not isinstance(failure, str):
        return Wrong(f"gives the failure {shown(failure)}", "it is a text, '' for none")
    return None


def plain(value: object) -> str:
    """Return a hint for a number of a library's type, such as np.float32, else ''."""
    if isinstance(value, Real) and not isinstance(value, bool | int | float):
        return f", as a float of Python, not as {type(value).__name__}: float(...)"
    return ""


def wrong_drafts(found: object) -> Wrong | None:
    """Return what is wrong with the result of `parse`, None if nothing is."""
    said = f"returned {shown(found)}"
    many = cast("list[Any]", found) if isinstance(found, list) else []
    if many and all(type(one) in (TaskDraft, Rejected) for one in many):
        drafts = [one for one in many if isinstance(one, TaskDraft)]
        return next(filter(None, (wrong_chance(draft.chance) for draft in drafts)), None)
    return Wrong(
        said,
        "return a list with a TaskDraft or a Rejected, never an empty one",
    )


def wrong_chance(chance: object) -> Wrong | None:
    """Return what is wrong with the chance of a task, None if nothing is."""
    if isinstance(chance, int | float) and not isinstance(chance, bool) and 0 <= chance < 1:
        return None
    return Wrong(
        f"gives a task the chance {shown(chance)}",
        f"say how often a guess is right, from 0 (never) to below 1{plain(chance)}",
    )


def env_prompt(domain: Domain, context: Context) -> list[Message]:
    """Return pi_env's prompt: the domain's own, with the context's examples before the request.

    The examples stand behind the domain's system message, whose rules hold for all requests.
    """
    asked = domain.env_messages(context)
    system = list(takewhile(lambda message: message["role"] == "system", asked))
    return [*system, *context.examples, *asked[len(system) :]]


def example_turns(
    domain: Domain, drafts: Sequence[TaskDraft], history: AgentHistory, shots: int
) -> tuple[Message, ...]:
    """Return the turns of at most `shots` examples, made from the first drafts.

    An example asks pi_env to vary a draft and answers with the program of the next draft, so it
    takes one draft more than there are examples.
    """
    turns: list[Message] = []
    for base, answer in islice(pairwise(drafts), shots):
        request = domain.env_messages(Context("", "", base, history))
        turns += [message for message in request if message["role"] != "system"]
        turns.append({"role": "assistant", "content": answer.program})
    return tuple(turns)


def judged(
    domain: Domain, draft: TaskDraft, messages: Sequence[Message], trace: str = ""
) -> Verdict:
    """Return the verdict on a transcript; raises DomainError where `score` returns no verdict."""
    try:
        verdict = domain.score(draft, messages)
    except GenenvError:
        raise
    except FAILURES as error:
        wrong = Wrong(raised(error), "return a Verdict for any answer")
        raise _broken(domain, "score", wrong, _of(draft, messages, trace)) from error
    if wrong := wrong_verdict(verdict):
        raise _broken(domain, "score", wrong, _of(draft, messages, trace))
    return replace(verdict, failure=storable(verdict.failure))


def parsed(domain: Domain, text: str) -> list[TaskDraft | Rejected]:
    """Return the tasks in a text of pi_env; raises DomainError where `parse` returns anything else.

    It rejects a task with half a character, which JSON can bring and no file can hold.
    """
    try:
        found = domain.parse(text)
    except GenenvError:
        raise
    except FAILURES as error:
        wrong = Wrong(raised(error), "return Rejected")
        raise _broken(domain, "parse", wrong, f" for {shown(text)}") from error
    if wrong := wrong_drafts(found):
        raise _broken(domain, "parse", wrong, f" for {shown(text)}")
    specs = (no_json(one.spec) for one in found if isinstance(one, TaskDraft))
    if odd := next(filter(None, specs), ""):
        wrong = Wrong(f"gives a task whose spec is no JSON: {odd},", "keep JSON in it")
        raise _broken(domain, "parse", wrong, f" for {shown(text)}")
    return [_whole(one) for one in found]


def embedded(domain: Domain, prompts: Sequence[str]) -> NDArray[np.float64] | None:
    """Return the domain's vectors of requests, shape (requests, d); None without an embedding.

    Raises DomainError unless there is a vector of finite numbers for each request.
    """
    if not isinstance(domain, EmbedsTasks):
        return None
    import numpy as np

    on = f" for {len(prompts)} requests, the first {shown(next(iter(prompts), ''))}"
    try:
        vectors = np.asarray(domain.embed(prompts), dtype=np.float64)
    except GenenvError:
        raise
    except FAILURES as error:
        raise _broken(domain, "embed", Wrong(raised(error), VECTORS), on) from error
    if vectors.ndim != 2 or len(vectors) != len(prompts):
        wrong = Wrong(f"returned numbers of shape {vectors.shape}", VECTORS)
        raise _broken(domain, "embed", wrong, on)
    if not np.isfinite(vectors).all():
        raise _broken(domain, "embed", Wrong("returned a number that is not finite", VECTORS), on)
    return vectors


def _whole(item: TaskDraft | Rejected) -> TaskDraft | Rejected:
    if isinstance(item, Rejected):
        return replace(item, detail=storable(item.detail))
    texts = (item.prompt, item.ground_truth, item.program, item.family, item.fingerprint)
    try:
        json.dumps([*texts, item.spec], ensure_ascii=False, default=repr).encode()
    except UnicodeEncodeError:
        return Rejected(Rejection.UNPARSEABLE, "half a character, which no file can hold")
    return item


def _of(draft: TaskDraft, messages: Sequence[Message], trace: str) -> str:
    said = [one["content"] for one in messages if one["role"] == "assistant"]
    of_trace = f" of trace {trace}" if trace else ""
    answer = shown(said[-1] if said else "")
    return f" for the answer {answer}{of_trace} to the task {shown(draft.prompt)}"


def _broken(domain: Domain, method: str, wrong: Wrong, what: str) -> DomainError:
    return DomainError(
        f"domain {domain.name}: {method} {wrong.found}{what}: {wrong.remedy} "
        "(`genenv domain check` plays the domain without models)"
    )
