"""Reward-weighted regression with the real TRL trainer on tiny models, and its KL cap.

Invariants: the gradients of the weighted likelihood and of the KL equal hand-written ones, and the
KL's equals finite differences; the likelihood is of the rows with a weight and the KL along those
on the leash, whichever those are; the reported KL is the brute-force one of the saved weights;
micro-batches change nothing but rounding; above the cap an update pulls or rolls back, ends under
the cap if any state was, and never returns its own start; both trainers give equal bits in another
process.
"""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from genenv_core.canonical import file_sha256
from genenv_core.config.sections.training import LoraConfig, TrainingConfig
from genenv_core.config.sections.updates import RwrConfig
from genenv_core.errors import NumericalError, TrainingError
from genenv_core.training.requests import UpdateResult
from genenv_core.training.rwr import reference
from genenv_core.training.rwr import trainer as rwr
from genenv_core.training.rwr.leash import Leash
from genenv_core.training.updates.rwr import RwrRequest
from genenv_core.training.updates.table import run_update
from tests.examples import many, some
from tests.mutations import mutation
from tests.unit.training.builders_training import (
    Gradient,
    grpo_of,
    grpo_rows,
    load,
    mixed_rows,
    moved,
    noted_gradients,
    relative_error,
    rwr_of,
    rwr_rows,
    tiny_checkpoint,
    token_logits,
    token_logprobs,
    weights,
)

TRAINER = "genenv_core/training/rwr/trainer.py"
REFERENCE = "genenv_core/training/rwr/reference.py"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("policy") / "env", seed=1)


@pytest.fixture(scope="module")
def initial(policy: Path) -> Path:
    """Return a checkpoint whose KL to the policy is some nats a sequence."""
    path = policy.parent / "initial"
    moved(policy, 5).save_pretrained(path)
    AutoTokenizer.from_pretrained(policy).save_pretrained(path)
    return path


def request(
    tmp_path: Path, policy: Path, initial: Path, rows: list[dict[str, Any]], **options: Any
) -> RwrRequest:
    name = options.pop("name", "out")
    defaults = {"max_grad_norm": 1000, "kl_cap": 1e6, "steps_per_row": 100}
    return rwr_of(tmp_path, name, rows, policy, initial, **defaults | options)


def update(
    tmp_path: Path, policy: Path, initial: Path, rows: list[dict[str, Any]], **options: Any
) -> UpdateResult:
    return run_update(request(tmp_path, policy, initial, rows, **options))


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> list[Gradient]:
    return noted_gradients(monkeypatch)


def sequence_kl(model: Any, reference: Any, rows: list[dict[str, Any]]) -> torch.Tensor:
    """Return KL(model || reference) along the leash, nats a sequence, summed without padding."""
    total = torch.zeros((), dtype=next(model.parameters()).dtype)
    leashed = [row for row in rows if row["leash"]]
    for row in leashed:
        ours = token_logits(model, row).softmax(-1)
        with torch.no_grad():
            theirs = token_logits(reference, row).softmax(-1)
        total = total + (ours * (ours / theirs).log()).sum()
    return total / len(leashed)


def weighted_nll(model: Any, rows: list[dict[str, Any]]) -> torch.Tensor:
    tokens = sum(len(row["completion_ids"]) for row in rows if row["weight"])
    parts = [-row["weight"] * token_logprobs(model, row).sum() / tokens for row in rows]
    return torch.stack(parts).sum()


def gradient_of(model: Any, loss: torch.Tensor) -> Gradient:
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters()}


@mutation(
    "the KL is along the rows that are learned from, too", TRAINER,
    'if batch["leash"]:\n            kl', "if True:\n            kl",
)  # fmt: skip
@pytest.mark.parametrize("make", [rwr_rows, mixed_rows])
@pytest.mark.parametrize(("kl_coef", "micro"), [(0.0, 64), (0.3, 64), (0.3, 3)])
def test_gradient_equals_the_hand_written_loss(
    tmp_path: Path,
    policy: Path,
    initial: Path,
    gradients: list[Gradient],
    kl_coef: float,
    micro: int,
    make: Any,
) -> None:
    rows = make(7)
    result = update(
        tmp_path, policy, initial, rows, kl_coef=kl_coef, micro_batch_rows=micro, steps=1
    )
    model, reference = load(policy), load(initial)
    nll, kl = weighted_nll(model, rows), sequence_kl(model, reference, rows)
    expected = gradient_of(model, nll + kl_coef * kl)
    assert len(gradients) == 1
    assert relative_error(gradients[0], expected) < 1e-5
    assert result.metrics["nll"] == pytest.approx(nll.item(), rel=1e-5)
    assert result.metrics["loss"] == pytest.approx((nll + kl_coef * kl).item(), rel=1e-5)
    assert (result.action, result.note, result.steps) == ("updated", "", 1)


@pytest.mark.parametrize("make", [rwr_rows, mixed_rows])
def test_pulling_gradient_is_the_kl_alone_and_matches_finite_differences(
    tmp_path: Path, policy: Path, initial: Path, gradients: list[Gradient], make: Any
) -> None:
    rows = make(5)
    update(tmp_path, policy, initial, rows, kl_cap=1e-3, steps=1, micro_batch_rows=2)
    model, reference = load(policy).double(), load(initial).double()
    expected = gradient_of(model, sequence_kl(model, reference, rows))
    assert relative_error(gradients[0], expected) < 1e-5
    name = "model.layers.0.self_attn.q_proj.weight"
    parameter = model.get_parameter(name)
    at = divmod(int(expected[name].abs().argmax()), parameter.size(1))
    values = []
    with torch.no_grad():
        for step in (1e-3, -2e-3):
            parameter[at] += step
            values.append(sequence_kl(model, reference, rows).item())
    slope = (values[0] - values[1]) / 2e-3
    assert float(gradients[0][name][at]) == pytest.approx(slope, rel=1e-3)


def test_kl_reported_is_the_brute_force_one_of_the_saved_weights(
    tmp_path: Path, policy: Path, initial: Path
) -> None:
    rows = rwr_rows(9)
    result = update(tmp_path, policy, initial, rows, steps=3, micro_batch_rows=4)
    saved, reference = load(result.checkpoint).double(), load(initial).double()
    with torch.no_grad():
        kl = sequence_kl(saved, reference, rows).item()
    assert result.metrics["kl_leash"] == pytest.approx(kl, rel=1e-5)
    assert kl > 0.1


@pytest.mark.parametrize("make", some((rwr_rows, mixed_rows), (mixed_rows,)))
def test_micro_batches_change_only_rounding(
    tmp_path: Path, policy: Path, initial: Path, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    rows = make(7)
    whole = update(tmp_path, policy, initial, rows, steps=2, name="whole")
    monkeypatch.setattr(rwr, "REFERENCE_CACHE_VALUES", 0)
    cut = update(tmp_path, policy, initial, rows, steps=2, micro_batch_rows=2, name="cut")
    for name in ("loss", "nll", "kl_leash", "grad_norm"):
        assert cut.metrics[name] == pytest.approx(whole.metrics[name], rel=1e-4)


@mutation(
    "the KL is divided by the rows that are learned from", TRAINER,
    "kl / self.step_batches.leash_rows", "kl / self.step_batches.rows",
)  # fmt: skip
def test_the_kl_is_of_the_leash_and_not_of_the_rows_learned_from(
    tmp_path: Path, policy: Path, initial: Path
) -> None:
    """At the start, by brute force: the two numbers are far apart."""
    rows = mixed_rows(7)  # 4 on the leash, 5 learned from
    result = update(tmp_path, policy, initial, rows, steps=1, learning_rate=1e-9)
    model, reference = load(policy), load(initial)
    with torch.no_grad():
        leash = sequence_kl(model, reference, rows).item()
        learned = [row | {"leash": row["weight"] > 0} for row in rows]
        other = sequence_kl(model, reference, learned).item()
    assert result.metrics["kl_leash"] == pytest.approx(leash, rel=1e-4)
    assert abs(other - leash) > 0.05 * leash


@mutation(
    "rows of the KL alone thin the likelihood", "genenv_core/training/rwr/batches.py",
    "zip(ends, rows.weight, strict=True) if weight > 0]",
    "zip(ends, rows.weight, strict=True) if weight >= 0]",
)  # fmt: skip
@pytest.mark.slow
def test_rows_of_the_kl_alone_take_no_step_and_no_likelihood(
    tmp_path: Path, policy: Path, initial: Path
) -> None:
    """Without a KL term, an update with such rows is the update without them."""
    rows = mixed_rows(9)
    learned = [row | {"leash": True} for row in rows if row["weight"]]
    options = {"kl_coef": 0.0, "steps": 100, "steps_per_row": 0.5, "micro_batch_rows": 1}
    both = update(tmp_path, policy, initial, rows, **options, name="both")
    alone = update(tmp_path, policy, initial, learned, **options, name="alone")
    assert both.steps == alone.steps == 3  # half of six rows
    assert both.metrics["nll"] == pytest.approx(alone.metrics["nll"], rel=1e-5)


def test_pull_brings_the_kl_under_the_cap_and_goes_on_learning(
    tmp_path: Path, policy: Path, initial: Path
) -> None:
    rows = rwr_rows(8)
    still = update(tmp_path, policy, initial, rows, steps=1, learning_rate=1e-8).metrics
    cap = 0.7 * still["kl_leash"]
    # Step 1 pulls, 2 and 3 learn (3 crosses the cap), 4 pulls, 5 learns and ends under it.
    result = update(tmp_path, policy, initial, rows, kl_cap=cap, steps=5)
    assert result.action == "pulled"
    assert result.metrics["kl_leash"] < cap < still["kl_leash"]
    assert result.metrics["kl_cap_hits"] == 2
    assert result.metrics["nll"] < still["nll"]
    assert "2 step(s) followed the KL alone" in result.note
    # Cut after step 3, the update ends above the cap and goes back to step 2.
    result = update(tmp_path, policy, initial, rows, kl_cap=cap, steps=3)
    assert result.action == "rolled_back" and "rolled back to step 2" in result.note
    assert result.metrics["kl_leash"] < cap


def test_pull_out_of_reach_keeps_the_lowest_kl_and_says_so(
    tmp_path: Path, policy: Path, initial: Path
) -> None:
    rows = rwr_rows(8)
    start = update(tmp_path, policy, initial, rows, steps=1, learning_rate=1e-8).metrics["kl_leash"]
    result = update(tmp_path, policy, initial, rows, kl_cap=1e-3, steps=2, learning_rate=1e-4)
    assert 1e-3 < result.metrics["kl_leash"] < start
    assert result.action == "pulled" and "still above it" in result.note
    assert result.metrics["kl_cap_hits"] == 3


@pytest.mark.slow
def test_roll_back_restores_the_last_state_under_the_cap_and_stops(
    tmp_path: Path, policy: Path
) -> None:
    rows = rwr_rows(8)
    path = [
        update(tmp_path, policy, policy, rows, steps=n, name=f"s{n}").metrics["kl_leash"]
        for n in (1, 2, 3)
    ]
    assert path[0] < path[1] < path[2]
    options = {"kl_cap": (path[1] + path[2]) / 2, "kl_cap_action": "roll_back"}
    result = update(tmp_path, policy, policy, rows, steps=8, **options)
    assert (result.action, result.steps) == ("rolled_back", 3)
    assert result.metrics["rolled_back"] == result.metrics["kl_cap_hits"] == 1
    assert result.metrics["kl_leash"] == path[1]
    two, kept = weights(tmp_path / "s2"), weights(result.checkpoint)
    assert all(torch.equal(two[name], kept[name]) for name in two)
    assert "rolled back to step 2" in result.note


@pytest.mark.parametrize("action", ["pull", "roll_back"])
def test_a_cap_below_one_step_still_moves_the_policy(
    tmp_path: Path, policy: Path, action: str
) -> None:
    rows = rwr_rows(8)
    options = {"kl_cap": 1e-4, "kl_cap_action": action, "steps": 2, "learning_rate": 1e-3}
    result = update(tmp_path, policy, policy, rows, **options)
    before, after = weights(policy), weights(result.checkpoint)
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert result.action == "rolled_back" and result.metrics["kl_leash"] < 1e-4


@settings(max_examples=many(60))
@given(
    start=st.floats(0.0, 3.0),
    step=st.floats(0.05, 2.0),
    pull=st.floats(-0.2, 1.0),
    cap=st.floats(0.1, 4.0),
    steps=st.integers(1, 6),
    action=st.sampled_from(["pull", "roll_back"]),
)
def test_leash_never_freezes_and_ends_under_a_cap_that_it_has_met(
    start: float, step: float, pull: float, cap: float, steps: int, action: str
) -> None:
    """The policy is a number x with KL x^2; likelihood adds `step`, a pull subtracts `pull`."""
    model = torch.nn.Module()
    model.x = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
    config = RwrConfig(kl_cap=cap, kl_cap_action=action, learning_rate=0.01)
    update = SimpleNamespace(
        model=model,
        measure_kl=lambda: float(model.x.detach() ** 2),
        kl_gradient=lambda: {"x": 2 * model.x.detach()},
    )
    leash = Leash(update, config)
    control = SimpleNamespace(should_training_stop=False)
    optimizer = SimpleNamespace(state={})
    leash.on_train_begin(None, SimpleNamespace(global_step=0), control)
    visited = [start**2]
    for number in range(1, steps + 1):
        with torch.no_grad():
            model.x += -pull * min(1.0, float(model.x)) if leash.pulling else step
        visited.append(float(model.x.detach() ** 2))
        leash.on_step_end(None, SimpleNamespace(global_step=number), control, optimizer=optimizer)
        if control.should_training_stop:
            break
    leash.settle()
    final = float(model.x.detach() ** 2)
    assert leash.kl == pytest.approx(final)
    if min(visited) <= cap:
        assert final <= cap
    elif leash.action == "rolled_back":
        assert final <= min(visited)
    if "rolled back to the start" in leash.note:
        assert float(model.x.detach()) != start
    assert leash.hits == sum(kl > cap for kl in visited)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"weight": math.nan}, NumericalError, "'r001': weight must be finite, got nan"),
        ({"weight": -1.0}, TrainingError, "'r001': weight must not be negative, got -1"),
        ({"weight": 30.0}, TrainingError, "mean .* must have mean 1"),
        ({"weight": 0.0, "leash": False}, TrainingError, "'r001': off the leash, so weight must"),
        ({"completion_ids": []}, TrainingError, "'r001': empty completion_ids"),
        ({"prompt_ids": []}, TrainingError, "'r001': empty prompt_ids"),
        ({"prompt_ids": [-1]}, TrainingError, "'r001': token id -1"),
        ({"row_id": "r000"}, TrainingError, "'r000': row_id repeats"),
    ],
)
def test_bad_rows_are_refused_by_row_and_value(
    tmp_path: Path, policy: Path, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    rows = rwr_rows(4)
    rows[1] |= change
    with pytest.raises(error, match=message):
        update(tmp_path, policy, policy, rows)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [({"leash": False}, "no row of pi_env is on the leash"), ({"weight": 0.0}, "have mean 0 and")],
)
def test_an_update_needs_rows_of_both_kinds(
    tmp_path: Path, policy: Path, change: dict[str, Any], message: str
) -> None:
    rows = [row | change for row in rwr_rows(4)]
    with pytest.raises(TrainingError, match=message):
        update(tmp_path, policy, policy, rows)


@pytest.mark.parametrize(
    "training",
    [
        TrainingConfig(),
        TrainingConfig(rows="shared"),
        TrainingConfig(lora=LoraConfig(rank=4), precision="bfloat16"),
    ],
)
@mutation(
    "states of the reference are computed again", REFERENCE,
    "self._states[index] = states", "pass",
)  # fmt: skip
@mutation(
    "the head reads states of other positions", REFERENCE,
    '["logits_to_keep"]]', '["logits_to_keep"] - 1]',
)  # fmt: skip
@mutation(
    "a head that makes other numbers of the states is believed", REFERENCE,
    "torch.equal(_from_states(model, batch, states), logits)", "True",
)  # fmt: skip
def test_the_reference_is_computed_once_and_its_states_give_the_same_bits(
    tmp_path: Path,
    policy: Path,
    initial: Path,
    monkeypatch: pytest.MonkeyPatch,
    training: TrainingConfig,
) -> None:
    passes: list[object] = []
    original, from_states = reference._last_states, reference._from_states

    def count(model: object) -> Any:
        passes.append(model)
        return original(model)

    def result(name: str) -> tuple[dict[str, float], list[str]]:
        passes.clear()
        made = update(
            tmp_path, policy, policy if training.lora.rank else initial, mixed_rows(7),
            steps=3, micro_batch_rows=2, name=name, training=training,
        )  # fmt: skip
        weights = sorted(made.checkpoint.glob("*.safetensors"))
        return made.metrics, [file_sha256(path) for path in weights]

    monkeypatch.setattr(reference, "_last_states", count)
    whole = result("whole")
    assert passes == []
    monkeypatch.setattr(rwr, "REFERENCE_CACHE_VALUES", 0)
    assert result("states") == whole
    assert len(passes) == 2  # micro-batches with the four rows on the leash
    monkeypatch.setattr(reference, "_from_states", lambda *given: from_states(*given) + 1)
    assert result("neither") == whole


def test_another_vocabulary_of_the_reference_is_refused(tmp_path: Path, policy: Path) -> None:
    other = tiny_checkpoint(tmp_path / "other", vocabulary=44)
    with pytest.raises(TrainingError, match=r"vocabulary of 40 and its initial .* of 44"):
        update(tmp_path, policy, other, rwr_rows(4))


def test_output_is_a_whole_checkpoint_and_nothing_else_is_left_or_printed(
    tmp_path: Path, policy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = rwr_rows(4)
    capfd.readouterr()
    result = update(tmp_path, policy, policy, rows)
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.parquet"]
    before = AutoTokenizer.from_pretrained(policy)
    after = AutoTokenizer.from_pretrained(result.checkpoint)
    assert before.get_vocab() == after.get_vocab()
    prompt = torch.tensor([rows[0]["prompt_ids"]])
    text = load(result.checkpoint).generate(prompt, max_new_tokens=4, do_sample=False)
    assert text.size(1) > prompt.size(1)
    assert all(math.isfinite(value) for value in result.metrics.values())


RUN_BOTH = """
import sys
from pathlib import Path
from genenv_core.training.updates.grpo import GrpoRequest
from genenv_core.training.updates.rwr import RwrRequest
from genenv_core.training.updates.table import run_update
folder = Path(sys.argv[1])
run_update(RwrRequest.model_validate_json((folder / "rwr.json").read_text()))
run_update(GrpoRequest.model_validate_json((folder / "grpo.json").read_text()))
"""


@pytest.mark.slow
def test_both_trainers_give_equal_bits_in_another_process(tmp_path: Path, policy: Path) -> None:
    regression = request(tmp_path, policy, policy, rwr_rows(9), micro_batch_rows=4, steps=3)
    rows = grpo_rows(5, 4, sampler=load(policy), masked=True)
    settings = {"groups_per_step": 2, "kl_coef": 0.1, "micro_batch_rows": 3, "seed": 3}
    grpo = grpo_of(tmp_path, "agent", rows, policy, **settings)

    def digests() -> list[str]:
        files = [tmp_path / name / "model.safetensors" for name in ("out", "agent")]
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]

    here = [run_update(grpo), run_update(regression)]
    first = digests()
    for name, record in (("rwr", regression), ("grpo", grpo)):
        (tmp_path / f"{name}.json").write_text(record.model_dump_json(by_alias=True))
    subprocess.run(
        [sys.executable, "-c", RUN_BOTH, str(tmp_path)],
        check=True,
        timeout=300,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "7"},
    )
    assert digests() == first
    assert here[0].steps == 6
