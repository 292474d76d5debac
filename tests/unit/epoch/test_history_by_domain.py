"""Old groups in an update of pi_agent, in a run of several domains.

Invariants: each domain has its share of the drawn old groups, and the others fill what it lacks;
new and base groups are drawn as without domains, and so is everything in a run of one domain; a
group is of the domain of its task; one domain adds nothing to a stage's key.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import polars as pl
import pytest

from flows.state import shared_draw
from genenv_core.algorithm.mixture import Group, draw
from genenv_core.config.load import resolve
from genenv_core.config.sections.updates import MixtureConfig
from genenv_core.domains.shares import Shares
from genenv_core.epoch.agent_update import DomainsOfTasks, agent_rows
from genenv_core.training.grpo.advantages import grpo_advantages
from schemas.enums import MixtureShare
from tasks.grpo_update import SharedDraw
from tests.mutations import mutation
from tests.unit.epoch.test_updates import EPOCH, GRPO, NEW, NOW, d_train, tokens_of, traces_of

MIXTURE = "genenv_core/algorithm/mixture.py"
AGENT_UPDATE = "genenv_core/epoch/agent_update.py"
SHARES = {MixtureShare.NEW: 0.5, MixtureShare.BASE: 0.125, MixtureShare.HISTORY: 0.375}


def pool(**history: int) -> list[Group]:
    """Return 12 new groups, a base group, and old ones of each domain."""
    new = [Group(f"n{place}", MixtureShare.NEW, 1, "a") for place in range(12)]
    old = [
        Group(f"{name}{place}", MixtureShare.HISTORY, 0, name)
        for name, count in history.items()
        for place in range(count)
    ]
    return [*new, Group("base", MixtureShare.BASE, 1, "a"), *old]


def old_of(groups: list[Group], domains: Shares | None) -> Counter[str]:
    drawn = draw(groups, shares=SHARES, max_groups=64, seed=3, domains=domains)
    assert len({one.group_id for one in drawn}) == len(drawn)
    assert sum(one.source is MixtureShare.NEW for one in drawn) == 12
    return Counter(one.domain for one in drawn if one.source is MixtureShare.HISTORY)


@mutation(
    "old groups of one domain crowd out those of another", MIXTURE,
    "if source is MixtureShare.HISTORY and domains is not None:", "if False:",
)  # fmt: skip
@mutation(
    "a domain draws from the old groups of all", MIXTURE,
    "[one for one in offered if one.domain == name] for", "[one for one in offered if one] for",
)  # fmt: skip
def test_each_domain_has_its_share_of_old_groups() -> None:
    both = Shares({"a": 2.0, "b": 1.0})
    # 24 places, 9 of them for old groups: 6 of a and 3 of b, though 40 to 4 are there.
    assert old_of(pool(a=40, b=4), both) == {"a": 6, "b": 3}
    assert old_of(pool(a=40, b=1), both) == {"a": 8, "b": 1}
    assert old_of(pool(a=2, b=3), both) == {"a": 2, "b": 3}
    assert old_of(pool(b=20), both) == {"b": 9}
    assert old_of(pool(), both) == {}


def test_a_run_of_one_domain_draws_what_it_drew_before() -> None:
    groups = [Group(f"n{place}", MixtureShare.NEW, 1) for place in range(6)]
    groups += [Group("b0", MixtureShare.BASE, 1)]
    groups += [Group(f"h{place}", MixtureShare.HISTORY, 0) for place in range(9)]
    drawn = draw(groups, shares=SHARES, max_groups=64, seed=7)
    # As written down before there were domains.
    wanted = "h8 n3 n1 b0 h5 n4 h0 n0 n2 n5 h4"
    assert " ".join(one.group_id for one in drawn) == wanted


STORED = d_train(
    {f"{name}{place}": ("new", NOW - 1, [0.0, 1.0]) for name in "xy" for place in range(4)}
)


@mutation(
    "a group is of no domain", AGENT_UPDATE, "shares.domain_of(of_task.get(task))", '""',
)  # fmt: skip
@mutation(
    "an update does not know the shares of domains", AGENT_UPDATE,
    "domains=domains.shares if domains else None", "domains=None",
)  # fmt: skip
@pytest.mark.parametrize("weights", [{"x": 1.0, "y": 1.0}, {"x": 100.0, "y": 1.0}])
def test_a_group_is_of_the_domain_of_its_task(weights: dict[str, float]) -> None:
    tasks = STORED.select("task_id", family=pl.col("group_id").str.slice(0, 1) + "/k1").unique()
    drawn = [
        agent_rows(
            NEW, STORED, tokens_of(NEW, STORED), traces_of(NEW, STORED),
            epoch=EPOCH, policy_version=NOW, seed=seed, max_groups=GRPO.max_groups,
            advantages=partial(grpo_advantages, scale=True),
            mixture=MixtureConfig(new=0.5, base=0, history=0.5, max_policy_age=2),
            domains=DomainsOfTasks(Shares(weights), tasks),
        ).samples.filter(source="history")["group_id"].unique()
        for seed in range(4)
    ]  # fmt: skip
    for groups in drawn:
        assert groups.str.slice(0, 1).value_counts().sort("group_id")["count"].to_list() == (
            [2, 2] if weights["x"] == 1 else [3, 1]
        )


def test_one_domain_is_no_input_of_the_stage() -> None:
    assert shared_draw(resolve("tiny"), []) is None
    both = resolve("tiny", overrides=["domains=[{name: desk, weight: 2}, {name: trails}]"])
    assert shared_draw(both, []) == SharedDraw(["desk", "trails"], [2.0, 1.0], [])
