"""Measures before a run how long prompts of pi_env and examples are, by the run's own domain.

It needs the tokenizer of the given model, but not torch.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.models import chat_template_kwargs
from genenv_core.domains.protocol import Domain
from genenv_core.exchange.base_data import configured_base, heldout_fingerprints
from genenv_core.exchange.external import Given
from genenv_core.ids import seed_from
from genenv_core.types import AgentHistory, Context, Policy

TRIED = 64
"""Most base tasks whose prompts it measures."""


def longest_prompt(config: RunConfig, given: Given, domain: Domain) -> int | None:
    """Return the tokens of pi_env's longest prompt, None where its tokenizer does not exist yet.

    It measures base tasks of the run, with the agent's success in each of their families, as
    prompts have it from the second epoch on. Raises ModelError for a checkpoint without a
    tokenizer, and what the domain raises.
    """
    if given.env_model is None:
        return None
    from genenv_core.play.asked import env_prompt, example_turns
    from genenv_core.play.chat import ChatFormat

    data = config.data.model_copy(update={"base_tasks": min(config.data.base_tasks, TRIED)})
    if given.base_file is None:
        drafts = domain.base_tasks(seed_from(config.seed, "base"), data.base_tasks)
    else:
        heldout = heldout_fingerprints(domain, config.seed, config.data)
        drafts = configured_base(data, Path(given.base_file.path), domain, heldout).drafts
    rates = {family: (4, 8) for family in sorted({draft.family for draft in drafts})}
    history = replace(AgentHistory(), success_rate=0.5, by_family=rates)
    chat = ChatFormat.load(
        Path(given.env_model.path), chat_template_kwargs(config.models, Policy.ENV)
    )
    longest = sorted(drafts, key=lambda draft: len(draft.program), reverse=True)
    examples = example_turns(domain, longest, history, config.generation.shots)
    return max(
        len(chat.first_prompt(env_prompt(domain, Context("", "", draft, history, examples))))
        for draft in drafts
    )


def longest_example(
    config: RunConfig, domain: Domain, model: Path, policy: Policy
) -> tuple[int, int, str] | None:
    """Return the tokens of a policy's longest example, those of the longest answer, and of what.

    It measures all examples of `warm_start.examples`, or `TRIED` of the domain's own; None for a
    domain without any. Raises as `longest_prompt`, and DataError for a bad file.
    """
    from genenv_core.epoch.warm_starting import lesson_rows, lessons_of, tools_of
    from genenv_core.exchange.examples.given import named_examples
    from genenv_core.play.chat import ChatFormat

    read, skew = named_examples(config, domain, (policy,)), config.warm_start.easy_skew
    lessons = lessons_of(domain, read, skew, seed_from(config.seed, "lessons"))
    if lessons is None:
        return None
    chat = ChatFormat.load(model, chat_template_kwargs(config.models, policy))
    examples = lessons.to_measure(policy, TRIED)
    what = "warm_start.examples" if read is not None else f"{TRIED} examples of the domain"
    rows = lesson_rows(chat, examples, tools_of(domain, policy))
    prompt, answer = (rows[name].list.len() for name in ("prompt_ids", "completion_ids"))
    return max((prompt + answer).to_list()), max(answer.to_list()), what
