"""An epoch under each arm, walked with stages that compute nothing.

Invariants: every arm has a record; the flow trains the policies of the record and no others; tasks
are made with the outputs of the last epochs, or in epoch 1 with none; an arm of a file reads that
file, others read none, and a configuration that mixes the two is refused; the first agent is an
input of its update where `grpo.kl_reference` says so; a set is made once, and each epoch attempts
its window of it; a branch goes on from the state that the run itself had, and plays its set.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.epoch import round_of
from flows.state import EpochState
from genenv_core.config.arms import ARMS, Arm, TaskSet
from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.updates import GrpoConfig
from genenv_core.config.stages import EPOCH_STAGES, START_STAGES
from genenv_core.epoch.attempting.windows import Window
from genenv_core.errors import ConfigError
from genenv_core.storage.records.manifest import ArtifactRef
from tasks.generate_tasks import STAGE as GENERATE
from tasks.grpo_update import STAGE
from tasks.placement.task import StageTask
from tasks.rollout import STAGE as ROLLOUT
from tasks.rwr_update import rwr_update
from tasks.stage.inputs import decode, encode
from tasks.stage.key import parts_of
from tasks.stage.planning import Planned
from tests.mutations import mutation

EPOCH = "flows/epoch.py"

FACTS = {"published": {"agent": True, "env": True}, "validation": 0.5, "is_best": True}
CHECKPOINTS = {"agent": "a" * 64, "env": "e" * 64}


def config(arm: Arm, folder: Path) -> RunConfig:
    fields: dict[str, Any] = {"arm": arm.value, "root": str(folder), "run_id": "x"}
    overrides: list[str] = []
    if ARMS[arm].tasks is TaskSet.TEACHER:
        (folder / "tasks.jsonl").write_text('{"program": "+ 8 bolts 7"}\n')
        overrides = [f"teacher.file={folder}/tasks.jsonl"]
    return resolve("tiny", overrides=overrides, fields=fields)


def made(stage: str, number: int) -> ArtifactRef:
    digest = f"{stage} {number}"
    return ArtifactRef(
        stage=stage, key="k" * 64, digest=digest, facts=FACTS, checkpoints=CHECKPOINTS
    )


def start() -> EpochState:
    """Return the state that epoch 1 starts from."""
    first, *others = (made(stage, 0) for stage in START_STAGES)
    return EpochState.after_start(first, None, *others)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, str], tuple[int, Any]]:
    """Return a dict that fills: (epoch of the flow, stage) -> the submitted epoch and inputs."""
    found: dict[tuple[int, str], tuple[int, Any]] = {}

    def submit(
        self: StageTask[Any], config: RunConfig, number: int, inputs: Any, behind: Any = ()
    ) -> Planned:
        assert [one.stage for one in behind] == (
            ["grpo_update"]
            if config.execution.updates_at_once == 1 and self.stage.name == "rwr_update"
            else []
        )
        name = self.stage.name
        walked = sum(stage == name for _, stage in found) + 1
        found[walked, name] = number, inputs
        return Planned(name, number, "hit", ref=made(name, walked))

    monkeypatch.setattr(StageTask, "submit", submit)
    return found


@pytest.mark.parametrize("arm", Arm)
def test_the_flow_does_what_the_record_of_an_arm_says(
    arm: Arm, tmp_path: Path, asked: dict[tuple[int, str], tuple[int, Any]]
) -> None:
    spec, run = ARMS[arm], config(arm, tmp_path)
    state = start()
    for number in (1, 2):
        state = round_of(run, number, state)
    assert {stage for _, stage in asked} == set(EPOCH_STAGES)
    for number in (1, 2):
        assert asked[number, "grpo_update"][1].train is spec.trains_agent
        assert asked[number, "rwr_update"][1].train is spec.trains_env
        given = asked[number, "generate_tasks"][1].offline
        assert (given is not None) is (spec.tasks is TaskSet.TEACHER)
    made_for, inputs = asked[2, "generate_tasks"]
    assert made_for == (1 if spec.tasks is TaskSet.FIRST else 2)
    before = [] if spec.tasks is TaskSet.FIRST else ["generate_tasks 1"]
    assert [ref.digest for ref in inputs.rated_tasks] == before
    assert [ref.digest for ref in inputs.recent] == before
    assert len(inputs.rated) == len(before)
    assert asked[2, "rollout"][0] == 2


@mutation(
    "updates that are to take turns begin together", EPOCH,
    "updates_at_once == 1", "updates_at_once == 0",
)  # fmt: skip
def test_updates_take_turns_where_the_configuration_says_so(
    tmp_path: Path, asked: dict[tuple[int, str], tuple[int, Any]]
) -> None:
    """`asked` looks at what each stage waits for, here and in every other test."""
    fields = {"root": str(tmp_path), "run_id": "x"}
    run = resolve("tiny", overrides=["execution.updates_at_once=1"], fields=fields)
    round_of(run, 1, start())
    assert (1, "rwr_update") in asked


@mutation("a stage waits for nothing", "tasks/placement/task.py", "list(behind)", "[]")
def test_a_stage_is_submitted_behind_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    class Task:
        def submit(self, **named: Any) -> Planned:
            given.append(named)
            return Planned("rwr_update", 1, "miss")

    monkeypatch.setattr(rwr_update, "_task", Task())
    before = Planned("grpo_update", 1, "miss")
    rwr_update.submit(config(Arm.GENENV, tmp_path), 1, None, [before])  # type: ignore[arg-type]
    assert given[0]["wait_for"] == [before]


@mutation("a refill is played without a reserve", EPOCH, "config.refill.groups > 0", "False")
def test_a_reserve_is_kept_where_a_refill_is_asked_for(
    tmp_path: Path, asked: dict[tuple[int, str], tuple[int, Any]]
) -> None:
    fields = {"root": str(tmp_path), "run_id": "x"}
    for overrides in ([], ["generation.candidates=3", "refill.groups=5"]):
        asked.clear()
        run = resolve("tiny", overrides=overrides, fields=fields)
        round_of(run, 1, start())
        inputs = asked[1, "generate_tasks"][1]
        assert decode(type(inputs), encode(inputs)) == inputs  # as a stage on a work pool gets it
        assert inputs.reserve is bool(overrides)


TAUGHT = ("arm=offline", "teacher.url=http://127.0.0.1:1/v1", "teacher.model_name=big")


@pytest.mark.parametrize("overrides", [("arm=static",), TAUGHT])
def test_a_set_is_asked_for_once_and_each_epoch_has_its_window(
    overrides: tuple[str, ...], tmp_path: Path, asked: dict[tuple[int, str], tuple[int, Any]]
) -> None:
    fields = {"root": str(tmp_path), "run_id": "x"}
    keys: list[set[str]] = []
    for size in (0, 20):
        run = resolve("tiny", overrides=[*overrides, f"data.set_tasks={size}"], fields=fields)
        state = start()
        asked.clear()
        for number in (1, 2):
            state = round_of(run, number, state)
        first, second = (asked[number, "generate_tasks"] for number in (1, 2))
        # These flows publish a pi_env in each epoch; an arm with one set trains none.
        assert first[0] == second[0] == 1 and first[1] == replace(second[1], env=first[1].env)
        assert first[1].set_tasks == size and (first[1].teacher is None) is (len(overrides) == 1)
        for inputs in (first[1], asked[2, "rollout"][1]):  # as a stage on a work pool gets them
            assert decode(type(inputs), encode(inputs)) == inputs
        windows = [asked[number, "rollout"][1].window for number in (1, 2)]
        assert windows == ([Window(0, 8), Window(8, 8)] if size else [None, None])
        keys.append(set(parts_of(ROLLOUT, run, 2, asked[2, "rollout"][1])["inputs"]))
        written = parts_of(GENERATE, run, 1, first[1])["inputs"]
        assert ("set_tasks" in written) is bool(size)
        assert ("teacher" in written) is (first[1].teacher is not None)
    assert keys[1] - keys[0] == {"window"}


@mutation(
    "the first agent is an input of every update", EPOCH,
    'state.agent_initial if config.grpo.kl_reference == "bootstrap" else None',
    "state.agent_initial",
)  # fmt: skip
@mutation(
    "the first agent moves with the published one", "flows/state.py",
    'changes["agent"] = _checkpoint(of_agent, "agent", refs.epoch)',
    'changes["agent"] = changes["agent_initial"] = _checkpoint(of_agent, "agent", refs.epoch)',
)  # fmt: skip
def test_the_first_agent_is_an_input_where_the_kl_is_to_it_and_in_no_other_key(
    tmp_path: Path, asked: dict[tuple[int, str], tuple[int, Any]]
) -> None:
    first = start()
    keys: list[set[str]] = []
    for reference in ("start", "bootstrap"):
        grpo = {"kl_coef": 0.1, "kl_reference": reference}
        run, state = config(Arm.GENENV, tmp_path), first
        run = run.model_copy(update={"grpo": GrpoConfig.model_validate(grpo)})
        asked.clear()
        for number in (1, 2):
            state = round_of(run, number, state)
        assert state.agent.policy_version == 2
        for number in (1, 2):
            inputs = asked[number, "grpo_update"][1]
            expected = first.agent if reference == "bootstrap" else None
            assert inputs.agent_initial == expected and inputs.agent.policy_version == number - 1
            keys.append(set(parts_of(STAGE, run, number, inputs)["inputs"]))
    assert keys[0] == keys[1] and keys[2] == keys[3] == keys[0] | {"agent_initial"}


@mutation(
    "the validation tasks are an input of every update", EPOCH,
    "bootstrap=data if config.grpo.attribution else None", "bootstrap=data",
)  # fmt: skip
def test_the_validation_tasks_are_an_input_where_groups_are_measured(
    tmp_path: Path, asked: dict[tuple[int, str], tuple[int, Any]]
) -> None:
    first = start()
    for on in (False, True):
        run = config(Arm.GENENV, tmp_path)
        run = run.model_copy(update={"grpo": GrpoConfig(attribution=on)})
        asked.clear()
        round_of(run, 1, first)
        inputs = asked[1, "grpo_update"][1]
        assert inputs.bootstrap == (first.bootstrap if on else None)
        assert ("bootstrap" in parts_of(STAGE, run, 1, inputs)["inputs"]) is on


@mutation(
    "an evaluation of other weights is taken for the agent's", "flows/state.py",
    "        if _is_of(evaluation, current.digest):\n", "        if current:\n",
)  # fmt: skip
@mutation(
    "an updated agent is given its old evaluation", "flows/state.py",
    "self.evaluation if _is_of(self.evaluation, digest) else None", "self.evaluation",
)  # fmt: skip
def test_an_agent_that_no_update_changed_is_given_its_last_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update; none; one whose gate is closed; none again; an update."""
    updates = {1: ("new", True), 3: ("refused", False), 5: ("newer", True)}
    current, given = "a" * 64, dict[int, str | None]()

    def submit(
        self: StageTask[Any], config: RunConfig, number: int, inputs: Any, behind: Any = ()
    ) -> Planned:
        nonlocal current
        name = self.stage.name
        candidate, is_open = updates.get(number, (current, True))
        facts = FACTS | {"published": {"agent": number in updates and is_open, "env": False}}
        changed = {"agent": candidate} if number in updates and name == "grpo_update" else {}
        if name == "evaluate":
            given[number] = inputs.earlier and inputs.earlier.digest
            facts["agent_checkpoint"] = candidate
        if name == "publish" and is_open:
            current = candidate
        ref = made(name, number).model_copy(update={"facts": facts, "checkpoints": changed})
        return Planned(name, number, "hit", ref=ref)

    monkeypatch.setattr(StageTask, "submit", submit)
    run, state = config(Arm.GENENV, tmp_path), start()
    first = state.evaluation.model_copy(update={"facts": {"agent_checkpoint": current}})
    state = state.model_copy(update={"evaluation": first})
    for number in range(1, 6):
        state = round_of(run, number, state)
    assert given == {1: None, 2: "evaluate 1", 3: None, 4: "evaluate 2", 5: None}


@pytest.mark.parametrize("arm", Arm)
def test_a_file_of_tasks_belongs_to_the_arms_that_read_one(arm: Arm) -> None:
    reads = ARMS[arm].tasks is TaskSet.TEACHER
    overrides = [] if reads else ["teacher.file=x.jsonl"]
    words = "has no teacher: set teacher.file, teacher.model" if reads else "or set arm to offline"
    with pytest.raises(ConfigError, match=words):
        resolve("tiny", overrides=overrides, fields={"arm": arm.value})


@pytest.mark.parametrize("arm", Arm)
def test_groups_of_one_are_for_arms_that_do_not_train_the_agent(arm: Arm, tmp_path: Path) -> None:
    values = config(arm, tmp_path).model_dump(by_alias=True)
    values["rollout"]["n"] = 1
    if ARMS[arm].trains_agent:
        with pytest.raises(ValueError, match="use 2 or more, or arm base"):
            RunConfig.model_validate(values)
    else:
        assert RunConfig.model_validate(values).rollout.n == 1


def test_a_branch_goes_on_where_a_run_would(
    tmp_path: Path, asked: dict[tuple[int, str], tuple[int, Any]]
) -> None:
    run = config(Arm.GENENV, tmp_path)
    straight = start()
    for number in (1, 2):
        straight = round_of(run, number, straight)
    assert EpochState.taken_over(run, taken(EPOCH_STAGES)) == straight


@mutation(
    "a branch writes a set anew under the name of the one that it takes over", EPOCH,
    "state.one_set or generate_tasks", "generate_tasks",
)  # fmt: skip
def test_a_branch_plays_the_set_that_it_takes_over(
    tmp_path: Path, asked: dict[tuple[int, str], tuple[int, Any]]
) -> None:
    later = tuple(stage for stage in EPOCH_STAGES if stage != "generate_tasks")
    for arm in (Arm.STATIC, Arm.GENENV):
        asked.clear()
        run = config(arm, tmp_path)
        state = EpochState.taken_over(run, taken(later))
        assert [past.tasks.digest for past in state.past] == ["generate_tasks 1"] * len(state.past)
        for number in (3, 4):
            state = round_of(run, number, state)
        tasks = [asked[walk, "rollout"][1].tasks.digest for walk in (1, 2)]
        writes = (1, "generate_tasks") in asked
        assert writes is (arm is Arm.GENENV)
        assert writes or tasks == ["generate_tasks 1"] * 2


def taken(later: tuple[str, ...]) -> list[dict[str, ArtifactRef]]:
    """Return two epochs of another run, the second one with the stages `later`."""
    stages = (START_STAGES, EPOCH_STAGES, later)
    return [{stage: made(stage, number) for stage in stages[number]} for number in range(3)]
