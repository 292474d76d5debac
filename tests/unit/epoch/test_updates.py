"""The rows of both updates, with advantages and weights by hand.

Invariants: pi_agent learns from whole groups of this epoch and from stored ones that are at least
one and at most max_age policy versions old, each source within its share, in an order of the seed;
its rows of the trainer and of `update_samples` are the same rows in the same order; pi_env learns
from the rows that the filter kept, weighted by the stored R_env where the target is alpha, and
elsewhere by p_hat and the target, with the family of the row's task where families count; its KL is
along what it wrote in this epoch, kept or rejected, but for failed requests; a row of this epoch is
new; no rows give empty tables.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import polars as pl
import pytest

from genenv_core.config.sections.curriculum import CurriculumConfig
from genenv_core.config.sections.updates import GrpoConfig, MixtureConfig, RwrConfig
from genenv_core.epoch.agent_update import agent_rows
from genenv_core.epoch.env_update import env_rows
from genenv_core.epoch.rows import UpdateRows, frame
from genenv_core.training.grpo.advantages import grpo_advantages
from schemas.registry import schema
from tests.mutations import mutation

AGENT_UPDATE = "genenv_core/epoch/agent_update.py"
ENV_UPDATE = "genenv_core/epoch/env_update.py"

EPOCH, NOW = 5, 7
MIXTURE = MixtureConfig(new=0.5, base=0.25, history=0.25, max_policy_age=2)
GRPO = GrpoConfig(max_groups=8)


def d_train(groups: dict[str, tuple[str, int, list[float]]]) -> pl.DataFrame:
    """Return rows of D_train from group -> (source, policy version, rewards)."""
    return frame(
        "d_train",
        [
            {
                "trace_id": f"{group}-{index}",
                "epoch": EPOCH,
                "task_id": f"task-{group}",
                "group_id": group,
                "policy_version": version,
                "source": source,
                "reward": reward,
                "success": reward == 1,
            }
            for group, (source, version, rewards) in groups.items()
            for index, reward in enumerate(rewards)
        ],
    )


def tokens_of(*pools: pl.DataFrame) -> pl.DataFrame:
    """Return tokens that differ for each trace, in another order than the rows."""
    ids = sorted((name for pool in pools for name in pool["trace_id"]), reverse=True)
    rows = [
        {
            "trace_id": name,
            "prompt_ids": [1],
            "token_ids": list(name.encode()),
            "logprobs": [-0.5] * len(name),
            "loss_mask": [1] * len(name),
        }
        for name in ids
    ]
    return pl.DataFrame(rows, schema={n: schema("trace_tokens")[n] for n in rows[0]})


def traces_of(*pools: pl.DataFrame) -> pl.DataFrame:
    """Return how each trace ended: the first of a group at a limit, the others by themselves."""
    ids = sorted((name for pool in pools for name in pool["trace_id"]), reverse=True)
    rows = [(name, "length" if name.endswith("-0") else "stop") for name in ids]
    return pl.DataFrame(rows, schema=["trace_id", "finish_reason"], orient="row")


NEW = d_train(
    {
        "n1": ("new", NOW, [1.0, 0.0]),
        "n2": ("new", NOW, [0.0, 0.5]),
        "n3": ("new", NOW, [0.25, 0.75]),
        "n4": ("new", NOW, [1.0, 0.5]),
        "b1": ("base", NOW, [0.0, 1.0]),
    }
)
STORED = d_train(
    {
        "now": ("new", NOW, [0.0, 1.0]),
        "one": ("new", NOW - 1, [0.0, 1.0]),
        "two": ("base", NOW - 2, [0.0, 1.0]),
        "three": ("new", NOW - 3, [0.0, 1.0]),
    }
)


def agent(
    new: pl.DataFrame = NEW,
    stored: pl.DataFrame = STORED,
    *,
    mixture: MixtureConfig = MIXTURE,
    grpo: GrpoConfig = GRPO,
    seed: int = 0,
) -> UpdateRows:
    return agent_rows(
        new,
        stored,
        tokens_of(new, stored),
        traces_of(new, stored),
        epoch=EPOCH,
        policy_version=NOW,
        mixture=mixture,
        max_groups=grpo.max_groups,
        advantages=partial(grpo_advantages, scale=grpo.scale_rewards == "group"),
        seed=seed,
    )


def sources(rows: UpdateRows) -> dict[str, tuple[str, int]]:
    samples = rows.samples.select("group_id", "source", "policy_version").unique()
    return {group: (source, version) for group, source, version in samples.iter_rows()}


@mutation(
    "an update replays groups of any age", AGENT_UPDATE,
    "admissible(v, current=current, max_age=max_age)", "True",
)  # fmt: skip
def test_an_agent_update_takes_new_base_and_stored_groups_of_admissible_age() -> None:
    # Four new groups fill half of an update of eight: base and history may give two each.
    assert sources(agent()) == {
        **{f"n{index}": ("new", NOW) for index in range(1, 5)},
        "b1": ("base", NOW),
        "one": ("history", NOW - 1),
        "two": ("history", NOW - 2),
    }
    young = MIXTURE.model_copy(update={"max_policy_age": 1})
    assert {"one", "two", "three", "now"} & sources(agent(mixture=young)).keys() == {"one"}


def test_no_source_passes_its_share_and_no_update_its_room() -> None:
    # Half of four: two new groups, one base group, one stored one.
    kinds = [source for source, _ in sources(agent(grpo=GrpoConfig(max_groups=4))).values()]
    assert sorted(kinds) == ["base", "history", "new", "new"]
    alone = MixtureConfig(new=1, base=0, history=0)
    assert sources(agent(mixture=alone)).keys() == {"n1", "n2", "n3", "n4"}


def test_groups_are_whole_and_adjacent_in_an_order_of_the_seed() -> None:
    orders = set[tuple[str, ...]]()
    for seed in range(6):
        rows = agent(seed=seed)
        groups = rows.training["group_id"].to_list()
        assert groups[::2] == groups[1::2] and len(set(groups)) == 7
        assert [name[-1] for name in rows.samples["row_id"]] == ["0", "1"] * 7
        orders.add(tuple(groups[::2]))
    assert len(orders) == 6
    assert agent(seed=3).training.equals(agent(seed=3).training)


@mutation(
    "the rollouts that end by themselves count as truncated", AGENT_UPDATE,
    'pl.col("finish_reason") == FinishReason.LENGTH.value',
    'pl.col("finish_reason") == FinishReason.STOP.value',
)  # fmt: skip
def test_the_trainer_gets_the_rows_that_are_noted() -> None:
    rows = agent()
    noted = rows.samples.select("row_id", "group_id")
    texts = [bytes(ids).decode() for ids in rows.training["completion_ids"]]
    assert texts == noted["row_id"].to_list()
    assert rows.training["group_id"].to_list() == noted["group_id"].to_list()
    known = dict(pl.concat([NEW, STORED]).select("trace_id", "reward").iter_rows())
    assert rows.training["reward"].to_list() == [known[name] for name in texts]
    assert rows.training["truncated"].to_list() == [name.endswith("-0") for name in texts]
    columns = ["group_id", "prompt_ids", "completion_ids", "logprobs", "loss_mask", "reward"]
    assert rows.training.columns == [*columns, "truncated"]
    assert rows.samples.schema == schema("update_samples")
    assert set(rows.samples["policy"]) == {"agent"} and set(rows.samples["epoch"]) == {EPOCH}
    assert rows.samples["weight"].null_count() == rows.samples.height
    assert rows.learned.equals(rows.samples)


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        # 1, 0, 0, 0: mean 1/4, standard deviation 1/2, and 1e-4 beside it.
        ("group", [0.75 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001]),
        ("none", [0.75, -0.25, -0.25, -0.25]),
    ],
)
def test_advantages_are_those_of_the_group(scale: Any, expected: list[float]) -> None:
    new = d_train({"g": ("new", NOW, [1.0, 0.0, 0.0, 0.0]), "h": ("new", NOW, [0.5] * 4)})
    grpo = GrpoConfig(scale_rewards=scale)
    samples = agent(new, STORED.clear(), grpo=grpo).samples
    found = {group: members["advantage"] for (group,), members in samples.group_by("group_id")}
    assert found["g"].to_list() == pytest.approx(expected, abs=1e-12)
    assert found["h"].to_list() == [0.0] * 4


def d_env(rows: dict[str, tuple[int, float, bool]]) -> pl.DataFrame:
    """Return rows of D_env from generation -> (epoch, R_env, kept), with opposite p_hat."""
    return frame(
        "d_env",
        [
            {
                "generation_id": name,
                "epoch": epoch,
                "task_id": f"task-{name}",
                "context_id": "c",
                "env_policy_version": epoch - 1,
                "p_hat": 1 - r_env,
                "r_env": r_env,
                "weight_raw": 9.0,
                "kept": kept,
            }
            for name, (epoch, r_env, kept) in rows.items()
        ],
    )


POOLS = d_env(
    {
        "old": (EPOCH - 1, 0.5, True),
        "dropped": (EPOCH, 1.0, False),
        "best": (EPOCH, 1.0, True),
        "worst": (EPOCH, 0.0, True),
    }
)
TEXTS = pl.DataFrame(
    {
        "generation_id": ["worst", "best", "dropped", "old", "unparsed", "failed"],
        "epoch": [EPOCH, EPOCH, EPOCH, EPOCH - 1, EPOCH, EPOCH],
        "env_policy_version": [EPOCH - 1, EPOCH - 1, EPOCH - 1, EPOCH - 2, EPOCH - 1, EPOCH - 1],
        "finish_reason": ["stop", "stop", "stop", "stop", "length", "error"],
        "prompt_ids": [[1], [2], [3], [4], [5], [6]],
        "token_ids": [[10], [20], [30], [40], [50], []],
    }
)


TASKS = pl.DataFrame(
    {
        "task_id": ["task-worst", "task-best", "task-dropped", "rejected", "task-old"],
        "family": ["k2", "k1", "k1", None, "k1"],
    }
)
CURRICULUM = CurriculumConfig(alpha=0.5, beta=2.0)


def env(
    pools: pl.DataFrame = POOLS,
    texts: pl.DataFrame = TEXTS,
    *,
    target: float = CURRICULUM.alpha,
    lambda_: float = 1.0,
    weight_by: str = "row",
    first: pl.DataFrame | None = None,
    seed: int = 0,
    **rwr: Any,
) -> UpdateRows:
    settings = RwrConfig.model_validate({"lambda": lambda_, "weight_by": weight_by, **rwr})
    return env_rows(
        pools, texts, TASKS, first=first, epoch=EPOCH, target=target, seed=seed, rwr=settings,
        curriculum=CURRICULUM,
    )  # fmt: skip


@mutation(
    "rwr forgets its target", ENV_UPDATE,
    "r_env(skill, alpha=target,", "r_env(skill, alpha=curriculum.alpha,",
)  # fmt: skip
def test_a_row_is_paid_by_its_p_hat_where_the_target_is_not_alpha() -> None:
    # p_hat .5, 0 and 1, target .25, beta 2: exp(-1/8), exp(-1/8), exp(-9/8).
    rows = env(target=0.25, lambda_=3.0).learned
    raw = [math.exp(3 * math.exp(-2 * square)) for square in (0.0625, 0.0625, 0.5625)]
    expected = [3 * value / sum(raw) for value in raw]
    assert rows["row_id"].to_list() == ["old", "best", "worst"]
    assert rows["weight"].to_list() == pytest.approx(expected, rel=1e-12)


@mutation(
    "a target moves a pay that has none", ENV_UPDATE,
    'rwr.pay == "alpha" and target != curriculum.alpha', "target != curriculum.alpha",
)  # fmt: skip
def test_another_pay_is_taken_as_stored_whatever_the_target_is() -> None:
    paid = POOLS.with_columns(pay=pl.Series([0.2, 0.8, 0.1, 0.4]))
    rows = env(paid, target=0.25, pay="learnability", lambda_=math.log(2)).learned
    kept = paid.filter("kept")
    raw = [2**one for one in kept["pay"]]
    assert rows["row_id"].to_list() == kept["generation_id"].to_list()
    assert rows["weight"].to_list() == pytest.approx(
        [len(raw) * one / sum(raw) for one in raw], rel=1e-12
    )


@mutation("families never count", ENV_UPDATE, 'if rwr.weight_by == "family":', "if False:")
def test_a_row_counts_in_the_family_of_its_task() -> None:
    # k1 has two kept rows, old and best; the rejected one of k1 does not count.
    weights = env(weight_by="family", lambda_=0.0).learned["weight"].to_list()
    assert weights == pytest.approx([15 / 17, 15 / 17, 21 / 17], rel=1e-12)


@mutation("rwr pays p_hat", ENV_UPDATE, 'coalesce("pay", "r_env")', 'coalesce("p_hat", "r_env")')
@mutation(
    "rwr takes what the filter rejected", ENV_UPDATE,
    'kept, fresh = pools.filter(pl.col("kept")),', "kept, fresh = pools,",
)  # fmt: skip
@mutation(
    "rows of the KL alone count as learned from", "genenv_core/epoch/rows.py",
    'pl.col("weight").is_null() | (pl.col("weight") > 0)',
    'pl.col("weight").is_null() | (pl.col("weight") >= 0)',
)  # fmt: skip
def test_an_env_update_takes_what_the_filter_kept_weighted_by_r_env() -> None:
    rows = env(lambda_=2.0)
    assert rows.learned["row_id"].to_list() == ["old", "best", "worst"]
    raw = [math.e, math.e**2, 1.0]
    expected = [3 * value / sum(raw) for value in raw]
    assert rows.learned["weight"].to_list() == pytest.approx(expected, rel=1e-12)
    assert env(lambda_=0.0).learned["weight"].to_list() == [1.0] * 3


@mutation(
    "the leash is along the rows that are learned from", ENV_UPDATE,
    'on="generation_id", how="anti"', 'on="generation_id", how="semi"',
)  # fmt: skip
@mutation(
    "the leash is along generations of older epochs", ENV_UPDATE,
    '(pl.col("epoch") == epoch) & whole', "whole",
)  # fmt: skip
@mutation(
    "the leash is along failed requests", ENV_UPDATE,
    '(pl.col("epoch") == epoch) & whole', 'pl.col("epoch") == epoch',
)  # fmt: skip
def test_the_kl_is_along_all_that_pi_env_wrote_in_this_epoch() -> None:
    rows = env(lambda_=0.0)
    assert rows.training.columns == ["row_id", "prompt_ids", "completion_ids", "weight", "leash"]
    assert rows.training.rows() == [
        ("old", [4], [40], 1.0, False),
        ("best", [2], [20], 1.0, True),
        ("worst", [1], [10], 1.0, True),
        ("dropped", [3], [30], 0.0, True),
        ("unparsed", [5], [50], 0.0, True),
    ]
    noted = rows.samples.select("row_id", "weight", "leash").rows()
    assert noted == [(name, weight, leash) for name, _, _, weight, leash in rows.training.rows()]
    # Every second of the epoch's four, in their order: worst and dropped.
    few = env(lambda_=0.0, kl_rows=2).training.select("row_id", "weight", "leash")
    assert few.rows() == [
        ("old", 1.0, False),
        ("best", 1.0, False),
        ("worst", 1.0, True),
        ("dropped", 0.0, True),
    ]


FIRST = pl.DataFrame(
    {
        "generation_id": [*(f"first{place}" for place in range(6)), "best"],
        "epoch": [1] * 6 + [EPOCH],
        "env_policy_version": [0] * 6 + [EPOCH - 1],
        "finish_reason": ["stop"] * 7,
        "prompt_ids": [*([place] for place in range(90, 96)), [2]],
        "token_ids": [*([place] for place in range(80, 86)), [20]],
    }
)


@mutation(
    "a text is rehearsed that is learned from already", ENV_UPDATE,
    '~pl.col("generation_id").is_in(known)', "pl.lit(True)",
)  # fmt: skip
@mutation(
    "rehearsal is a share of the rows beside it", ENV_UPDATE,
    "learned.height * share / (1 - share)", "learned.height * share",
)  # fmt: skip
@mutation(
    "a rehearsed text is one of D_env", ENV_UPDATE, 'if row["generation_id"] in drawn:', "if False:"
)
@mutation(
    "the same texts are rehearsed in every epoch", ENV_UPDATE,
    "np.random.default_rng(seed)", "np.random.default_rng(0)",
)  # fmt: skip
def test_a_share_of_the_rows_are_texts_of_the_first_pi_env() -> None:
    drawn: set[str] = set()
    for seed in range(20):
        rows = env(lambda_=2.0, rehearsal=0.4, first=FIRST, seed=seed)
        assert rows.learned["row_id"].to_list()[:3] == ["old", "best", "worst"]
        again = rows.learned[3:]  # 2 of 5 rows are .4
        assert again.height == 2 and again["weight"].to_list() == [1.0, 1.0]
        assert set(again["policy_version"]) == {0} and set(again["source"]) == {"rehearsal"}
        assert set(again["leash"]) == {False}
        drawn |= set(again["row_id"])
        texts = rows.training.join(again, on="row_id", how="semi").select(
            "row_id", "prompt_ids", "completion_ids"
        )
        for name, prompt, completion in texts.iter_rows():
            place = int(name.removeprefix("first"))
            assert (prompt, completion) == ([90 + place], [80 + place])
    assert drawn == {f"first{place}" for place in range(6)}
    # All there are where a larger share is asked for, and what is learned keeps its weights.
    most = env(lambda_=2.0, rehearsal=0.9, first=FIRST).learned
    assert most.height == 9 and most["row_id"].n_unique() == 9
    assert most["weight"].to_list()[:3] == env(lambda_=2.0).learned["weight"].to_list()


def test_nothing_is_rehearsed_where_nothing_is_learned() -> None:
    none_kept = POOLS.with_columns(kept=pl.lit(False))
    assert env(none_kept, rehearsal=0.4, first=FIRST).samples.is_empty()


def test_without_a_generation_of_this_epoch_there_is_no_update() -> None:
    before = POOLS.filter(pl.col("epoch") < EPOCH)
    assert env(before).learned["row_id"].to_list() == ["old"]
    lost = TEXTS.filter((pl.col("epoch") < EPOCH) | (pl.col("finish_reason") == "error"))
    assert env(before, lost).samples.is_empty()


def test_rows_of_an_env_update_are_new_in_their_own_epoch() -> None:
    samples = env().samples
    assert samples["source"].to_list() == ["history", *["new"] * 4]
    assert samples["policy_version"].to_list() == [EPOCH - 2, *[EPOCH - 1] * 4]
    assert set(samples["epoch"]) == {EPOCH} and set(samples["policy"]) == {"env"}
    assert samples["advantage"].null_count() == 5
    assert samples.schema == schema("update_samples")


def test_nothing_to_learn_from_is_an_empty_table() -> None:
    empty = agent(NEW.clear())
    assert empty.samples.is_empty() and empty.training.is_empty()
    none_kept = POOLS.with_columns(kept=pl.lit(False))
    assert env(none_kept).samples.is_empty()
    assert empty.samples.schema == schema("update_samples")
