"""Checks the supervised examples that a domain writes itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from genenv_core.domains.protocol import Domain, SeedData
from genenv_core.play.asked import shown
from genenv_core.play.checking.calling import called
from genenv_core.play.checking.shapes import DomainFault, items_of, of_messages
from genenv_core.types import TaskDraft

EXAMPLES = 30


def of_seed_data(domain: Domain, kept: Sequence[TaskDraft]) -> Iterator[DomainFault]:
    """Yield what is wrong with a domain's own examples, if it has any."""
    if not isinstance(domain, SeedData):
        return
    held = {draft.fingerprint for draft in kept}
    agent = called("agent_examples", lambda: domain.agent_examples(0, EXAMPLES))
    env = called("env_examples", lambda: domain.env_examples(0, EXAMPLES, 0.5))
    for method, given in (("agent_examples", agent), ("env_examples", env)):
        examples = items_of(given)
        if examples is None or len(examples) != EXAMPLES:
            yield DomainFault(
                method, f"returned {shown(given)}", f"return {EXAMPLES}, as was asked"
            )
            continue
        for example in examples:
            try:
                messages, text = example
            except (TypeError, ValueError):
                yield DomainFault(method, f"has {shown(example)}", "an example is (messages, text)")
                continue
            yield from of_messages(method, messages)
            if not isinstance(text, str):
                yield DomainFault(
                    method, f"has the answer {shown(text)}", "an example ends in a text"
                )
                continue
            if method != "env_examples":
                continue
            written = items_of(called("parse", lambda t=text: domain.parse(t))) or []
            if any(isinstance(one, TaskDraft) and one.fingerprint in held for one in written):
                yield DomainFault(method, f"shows the held-out task {shown(text)}", "leave it out")
