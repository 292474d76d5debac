"""The certificate of an exported folder as a report of OpenEnv's RFC 008, schema version 2.

The form is that of `openenv` 0.10 (`openenv/validation/schemas/report-v2.schema.json`), the names
of checks are those of its policy v2, local lane. The RFC defines the checks in a few words each;
`MEASURED` says which flaws genenv looks for in each. A report marks checks that `genenv certify`
does not make as skipped, with that reason, as the RFC asks. Checks of the statistical level are for
operators, so a report has them, in the lane `hub`, only where a model attempted the tasks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from genenv_core.errors import ConfigError, DataError
from genenv_core.play.checking.set_flaws import REMEDIES, AnyFlaw, SetFlaw
from genenv_core.play.checking.sets import CertifiedTask
from genenv_core.types import Flaw, JsonObject

PACKAGE_FILE = "openenv.yaml"
"""The file that makes a folder a package of OpenEnv."""

POLICY = "v2"

RUNTIME, SEMANTIC, STATISTICAL = 2, 3, 4
"""Levels of the RFC."""

ATTEMPTED = {
    "reachable": "statistical.reward_reachability",
    "separating": "statistical.difficulty_separation",
    "headroom": "statistical.headroom",
    "variance": "statistical.variance_bound",
    "signal": "statistical.training_signal",
    "floor": "statistical.adversarial_floor",
}
"""The report's name for each check of attempts."""

WARNS = ("statistical.headroom", "statistical.training_signal")
"""Checks whose failure is only a warning or advice, by policy v2."""

GAMEABILITY = "statistical.gameability_gap"
"""A check that genenv skips: it judges wrong answers by success, and keeps no rewards of them."""

DETERMINISM = "runtime.episode_determinism"
"""The check on which every semantic check depends."""

ORACLE = "semantic.oracle_max"
FLOOR = "semantic.floor_gap"

MEASURED: dict[str, tuple[AnyFlaw, ...]] = {
    "runtime.reward_well_formed": (SetFlaw.WRONG_VERDICT,),
    "runtime.tool_declaration_accuracy": (Flaw.UNKNOWN_TOOL,),
    DETERMINISM: (SetFlaw.UNREPEATABLE,),
    "runtime.episode_isolation": (SetFlaw.DEPENDS_ON_ORDER,),
    ORACLE: (Flaw.REJECTS_GROUND_TRUTH, Flaw.UNREACHABLE, Flaw.AMBIGUOUS),
    FLOOR: (SetFlaw.ALREADY_SOLVED, SetFlaw.PASSES_UNATTEMPTED),
    "semantic.canary_floor": (Flaw.ACCEPTS_TRIVIAL, Flaw.ACCEPTS_CANARY),
    "semantic.no_solution_leakage": (Flaw.LEAKS_ANSWER, Flaw.LEAKS_EARLY),
    "semantic.verifier_determinism": (Flaw.UNSTEADY_VERDICT, SetFlaw.DEPENDS_ON_TIME),
}
"""The checks that a certificate makes, and the flaws that each looks for."""

SKIPPED = (
    "runtime.startup",
    "runtime.observation_schema",
    "runtime.state_contract",
    "runtime.trajectory_record",
    "runtime.task_declaration_accuracy",
    "runtime.seed_control",
    "runtime.network_policy",
    "runtime.host_containment",
    "runtime.resource_bounds",
    "runtime.oracle_containment",
    "semantic.verifier_portability",
    "semantic.resource_envelope",
    "semantic.replayability",
)
"""The other checks of these levels; `openenv validate` makes them, or will."""

EXCLUDED = frozenset({".git", "__pycache__", ".venv", ".worktrees", "outputs"})
"""Folders whose files the digest of a package leaves out."""

SHOWN = 3
"""Most tasks with a flaw that a check names."""


def openenv_report(
    folder: Path,
    found: Sequence[CertifiedTask],
    seconds: float,
    attempts: Sequence[JsonObject] = (),
) -> JsonObject:
    """Return the report on a folder whose tasks have certificates, as plain JSON.

    `attempts` are rows of checks of attempts, from `check_rows`; with them the report's lane is
    `hub`. `seconds` is how long the certificate took. Its checks share their attempts, so each has
    this duration. Raises what `manifest_of` raises.
    """
    manifest = manifest_of(folder)
    results = [_result(name, flaws, found, seconds) for name, flaws in MEASURED.items()]
    by_name = {one["check_id"]: one for one in results}
    _judge_floor(by_name[FLOOR], manifest, found)
    if manifest["capabilities"].get("oracle") is None:
        _fail(
            by_name[ORACLE],
            "the package declares no oracle (RFC 008: a missing oracle fails this check)",
            f"declare capabilities.oracle in {PACKAGE_FILE}",
        )
    steady = by_name[DETERMINISM]["status"] == "pass"
    if not steady:
        for one in results:
            if one["check_id"].startswith("semantic."):
                one |= _skipped(one["check_id"], f"unmet dependency: {DETERMINISM}", seconds)
    results += [_skipped(name, "genenv certify does not make this check") for name in SKIPPED]
    if attempts:
        results += [_of_attempts(row, seconds) for row in attempts if row["check"] in ATTEMPTED]
        results.append(_skipped(GAMEABILITY, "the rewards of wrong answers are not kept"))
    failed = {one["check_id"] for one in results if one["status"] == "fail"}
    warned = any(one["status"] == "skip" for one in results) or failed
    return {
        "report_schema_version": "2",
        "target": str(folder),
        "source_digest": source_digest(folder),
        "signature": PACKAGE_FILE,
        "manifest": manifest,
        "policy_version": POLICY,
        "lane": "hub" if attempts else "local",
        "levels_run": [RUNTIME, SEMANTIC, *([STATISTICAL] if attempts else [])],
        "results": results,
        # By policy v2 a failed check of `MEASURED` fails the report; a skipped one is a warning.
        "verdict": "fail" if failed.difference(WARNS) else "warn" if warned else "pass",
    }


def _of_attempts(row: JsonObject, seconds: float) -> JsonObject:
    """Return the result of a check of attempts; `skip` where its interval decides nothing."""
    name = ATTEMPTED[row["check"]]
    if row["verdict"] == "cannot say":
        return _skipped(name, "the attempts cannot say: too few tasks", seconds)
    wanted = f"{'at least' if row['at_least'] else 'at most'} {row['limit']:g}"
    return {
        "check_id": name,
        "status": row["verdict"],
        "measured": {key: row[key] for key in ("estimate", "low", "high", "n", "limit")},
        "evidence": [
            f"{row['check']}: {row['estimate']:.3f}, 95 % interval {row['low']:.3f} to "
            f"{row['high']:.3f}, of {row['n']} {row['unit']}; wanted {wanted}"
        ],
        "remediation": None,
        "duration_s": seconds,
    }


def _result(
    name: str, flaws: Sequence[AnyFlaw], found: Sequence[CertifiedTask], seconds: float
) -> JsonObject:
    """Return the result of the tasks' checks for some flaws; `skip` where there is none."""
    checks = [(one, check) for one in found for check in one.checks if check.flaw in flaws]
    if not checks:
        return _skipped(name, "unmet dependency: no task can be checked for it", seconds)
    wrong = [(one, check) for one, check in checks if not check.passed]
    tasks = {id(one) for one, _ in checks}
    flawed = {id(one) for one, _ in wrong}
    said = [
        f"{check.flaw}: {check.detail} (task {one.task.draft.fingerprint})" for one, check in wrong
    ]
    remedies = {check.flaw: "{}: {}".format(*REMEDIES[check.flaw]) for _, check in wrong}
    return {
        "check_id": name,
        "status": "fail" if wrong else "pass",
        "measured": {"tasks_checked": len(tasks), "tasks_failing": len(flawed)},
        "evidence": said[:SHOWN] or [f"{len(tasks)} tasks were played without this fault"],
        "remediation": "; ".join(remedies.values()) or None,
        "duration_s": seconds,
    }


def _judge_floor(result: JsonObject, manifest: JsonObject, found: Sequence[CertifiedTask]) -> None:
    """Add to a result how far the reward of an empty answer is below the greatest one.

    The result fails where that is less than the manifest's margin.
    """
    rewards = [one.first.floor for one in found if one.first.floor is not None]
    if not rewards or result["status"] == "skip":
        return
    most, margin = manifest["reward"]["range"][1], manifest["reward"]["floor_margin"]
    floor = max(rewards)
    result["measured"] |= {"measured_floor": floor, "declared_margin": margin}
    if most - floor < margin:
        why = f"an empty answer earns {floor:g}; the gap to {most:g} is below {margin:g}"
        _fail(result, why, "score: let an empty answer earn less")


def _fail(result: JsonObject, why: str, remedy: str) -> None:
    result["status"] = "fail"
    result["evidence"] = [why, *result["evidence"]]
    result["remediation"] = "; ".join(filter(None, [remedy, result["remediation"]]))


def _skipped(name: str, why: str, seconds: float = 0.0) -> JsonObject:
    return {
        "check_id": name,
        "status": "skip",
        "measured": {},
        "evidence": [why],
        "remediation": None,
        "duration_s": seconds,
    }


def check_package(folder: Path) -> None:
    """Raise ConfigError for a folder that is no package of OpenEnv."""
    if not (folder / PACKAGE_FILE).is_file():
        raise ConfigError(
            f"--report: there is no {PACKAGE_FILE} in {folder}, and a report of RFC 008 is of a "
            "package of OpenEnv: write one with genenv export --format openenv, or leave it out"
        )


def manifest_of(folder: Path) -> JsonObject:
    """Return the normalized manifest of a package: what its file declares, section by section.

    Raises DataError for a file that cannot be read or lacks what a validation needs.
    """
    path = folder / PACKAGE_FILE
    try:
        raw: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    top = cast("JsonObject", raw) if isinstance(raw, dict) else {}
    declared: Any = top.get("validation")
    if not isinstance(declared, dict):
        raise DataError(f"{path}: has no section `validation`, which RFC 008 asks for")
    block = cast("JsonObject", declared)
    for name in ("reward", "resources", "capabilities", "types"):
        if not isinstance(block.get(name), dict):
            raise DataError(f"{path}: validation.{name} is missing, which RFC 008 asks for")
    more = {name: block[name] for name in ("network", "execution") if name in block}
    reward = {"range": [0.0, 1.0], **block["reward"]}
    if "floor_margin" not in reward:
        raise DataError(f"{path}: validation.reward.floor_margin is missing")
    return {
        "manifest_schema_version": "2" if "execution" in block else "1",
        "name": str(top.get("name", "")),
        "version": top.get("version"),
        "signature": PACKAGE_FILE,
        "reward": reward,
        "resources": block["resources"],
        "capabilities": block["capabilities"],
        "types": block["types"],
        "judge": block.get("judge"),
        "task_distribution": block.get("task_distribution"),
        **more,
    }


def source_digest(folder: Path) -> str:
    """Return the SHA-256 over the paths and contents of a package, as `openenv` computes it.

    Each file counts as its path, a zero byte, its content and a zero byte, in the order of paths.
    """
    files = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file() and not EXCLUDED.intersection(path.relative_to(folder).parts)
    }
    found = hashlib.sha256()
    for name in sorted(files):
        found.update(name.encode() + b"\0" + files[name].read_bytes() + b"\0")
    return found.hexdigest()
