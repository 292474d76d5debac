"""Renders the page of a certificate: a file for whoever owns the tasks.

It has no date and no clock, so the same command on the same tasks gives the same page. Tasks and
transcripts are hostile: Jinja escapes them, and the page's content security policy forbids to load
or run anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from genenv_core.evidence.worth import Worth, WorthCheck
from genenv_core.play.checking.set_flaws import MEANINGS, NOT_FOUND, REMEDIES, AnyFlaw
from genenv_core.play.checking.sets import FlawCount
from genenv_core.play.checking.showing import FlawExample
from genenv_core.play.transcript import turns
from genenv_core.report.folding import folded
from genenv_core.report.page import templates

CLIP = 4000
"""Characters of one message that the page shows."""


@dataclass(frozen=True, slots=True)
class CertifiedPage:
    """What a page says about a set of tasks.

    `subject` names the set in a sentence. `facts` are labels and values of the set, such as its
    digest. `notes` are sentences on what the set is, or what the numbers leave out. `asked` counts
    the tasks that the command was to certify. `flaws` are those of `counted`, [] without
    certificates. `unchecked` are flaws for which no task has a check, by the reason. `checks` are
    those that `certify` makes of attempts, [] without any. `check_remedies`, by name of a check,
    replace the remedy of its rule.
    """

    name: str
    subject: str
    asked: int
    facts: Mapping[str, str]
    flaws: Sequence[FlawCount]
    examples: Mapping[AnyFlaw, Sequence[FlawExample]]
    notes: Sequence[str] = ()
    unchecked: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    checks: Sequence[WorthCheck] = ()
    check_remedies: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def flawed(self) -> bool:
        """Return whether some task has a flaw."""
        return any(count.having for count in self.flaws)


def render(given: CertifiedPage, *, version: str) -> str:
    """Return the page: one HTML file without script and without network."""
    template = templates("genenv_core.evidence", spoken=folded, turns=turns, clipped=clipped)
    return template.get_template("certified.html.j2").render(
        given=given,
        verdict=verdict(given),
        attempts=attempts_verdict(given.checks),
        meanings=MEANINGS,
        remedies=REMEDIES,
        not_found=NOT_FOUND,
        version=version,
    )


def verdict(given: CertifiedPage) -> str:
    """Return in a sentence whether the tasks have flaws."""
    if not given.flaws:
        return "Nothing is known of flaws: there are no certificates."
    whole = given.flaws[-1]
    of = f"{whole.checked} task{'s' * (whole.checked != 1)}"
    early = f" It ended early: {given.asked} were to be certified." * (whole.checked < given.asked)
    if not whole.having:
        return (
            f"No flaw was found in {of}; of many more such tasks, the 95 % interval says that at "
            f"most {whole.high:.1%} have one.{early}"
        )
    have = "has a flaw" if whole.having == 1 else "have a flaw"
    share = whole.having / whole.checked
    return (
        f"{whole.having} of {of} {have}: {share:.1%}, with a 95 % interval from {whole.low:.1%} to "
        f"{whole.high:.1%}.{early}"
    )


def attempts_verdict(checks: Sequence[WorthCheck]) -> str:
    """Return in a sentence how many checks of attempts pass or fail; '' without checks."""
    if not checks:
        return ""
    counts = Counter(check.worth for check in checks)
    words = {Worth.PASS: "pass", Worth.FAIL: "fail", Worth.UNSURE: "cannot say"}
    said = [f"{counts[worth]} {word}" for worth, word in words.items() if counts[worth]]
    return f"Of {len(checks)} checks of the attempts, {', '.join(said)}."


def clipped(text: str) -> str:
    """Return a text that a page can hold, and how much of it is missing."""
    left = len(text) - CLIP
    return text if left <= 0 else f"{text[:CLIP]} … and {left} more characters"
