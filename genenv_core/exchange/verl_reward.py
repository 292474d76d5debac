"""The reward of exported tasks in verl: R_agent of one turn, judged by the domain's own code.

verl's own scores know no data source of ours. Give it this file:

    custom_reward_function.path=.../genenv_core/exchange/verl_reward.py
    custom_reward_function.name=compute_score
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from genenv_core.domains.registry import get_domain
from genenv_core.errors import DataError
from genenv_core.play.asked import judged
from genenv_core.types import Message, TaskDraft


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **others: Any,
) -> float:
    """Return R_agent of an answer to an exported task, 0 to 1.

    The answer is one turn, and the environment replies to it as in a rollout. Raises DataError for
    rows that no export of D_train wrote: what pi_env writes is rewarded by what the agent makes of
    it, which one text does not show. Raises DomainError for a domain whose `score` is broken.
    """
    kind, _, rest = data_source.partition("/")
    name, _, pool = rest.rpartition("/")
    if (kind, pool) != ("genenv", "d_train") or extra_info is None:
        raise DataError(
            f"data_source {data_source!r}: only rows of `genenv export --pool d_train --format "
            "verl` have a reward here, with their extra_info"
        )
    domain = get_domain(name, json.loads(extra_info["domain_options"]))
    draft = TaskDraft(
        prompt=extra_info["prompt"],
        spec=json.loads(extra_info["spec"]),
        ground_truth=ground_truth,
        program=extra_info["program"],
        family=extra_info["family"],
        difficulty=extra_info["difficulty"],
        fingerprint=extra_info["fingerprint"],
    )
    said: Message = {"role": "assistant", "content": solution_str}
    answer = domain.episode(draft, 0).step(solution_str)
    return judged(domain, draft, [*domain.agent_messages(draft), said, *answer.messages]).reward
