"""Stage `bootstrap`: base and held-out tasks, and the two checkpoints that the game starts from."""

from __future__ import annotations

import hashlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from genenv_core.config.schema import RunConfig
from genenv_core.domains.base import Domain
from genenv_core.errors import DataError, ModelError
from genenv_core.ids import seed_from, task_id
from genenv_core.storage.artifacts import file_sha256
from genenv_core.types import Policy, Rejected, TaskDraft, TaskSource
from tasks.rows import data_task_row, frame
from tasks.services import trainer
from tasks.stage import COMPUTE_FIELDS, FileRef, Stage, StageContext, StageTask

STAGE = Stage(
    "bootstrap",
    ("tasks.bootstrap", "genenv_core.training.warmstart"),
    ("domain", "data.base_tasks", "data.heldout_tasks", "bootstrap", *COMPUTE_FIELDS),
    ("torch", "transformers", "tokenizers"),
)

MODEL_FILES = (".json", ".safetensors", ".jinja", ".txt", ".model")
"""Files of a checkpoint that are taken over; pickled weights never are."""


def external_inputs(config: RunConfig) -> dict[str, FileRef | None]:
    """Return what bootstrap reads from outside of the store, with digests; raises when unusable."""
    inputs: dict[str, FileRef | None] = {"base_file": _data_file(config.data.base_file)}
    for policy in ("agent", "env"):
        name: str = getattr(config.models, policy)
        revision: str | None = getattr(config.models, f"{policy}_revision")
        inputs[f"{policy}_model"] = None
        if name != "bootstrap":
            folder = _hub_folder(name, revision) if revision else Path(name).expanduser()
            inputs[f"{policy}_model"] = _model_folder(policy, folder)
    return inputs


def compute(context: StageContext) -> dict[str, Any]:
    """Write the data tasks and both checkpoints."""
    config, domain = context.config, context.domain()
    base = _base_drafts(context, domain)
    heldout = domain.heldout_tasks(seed_from(context.seed, "heldout"), config.data.heldout_tasks)
    drafts = [(TaskSource.BASE, d) for d in base] + [(TaskSource.HELDOUT, d) for d in heldout]
    rows = [
        data_task_row(task_id(0, context.scope, index), source, index, draft)
        for index, (source, draft) in enumerate(drafts)
    ]
    context.out.table("tasks", frame("tasks", rows))
    policies: tuple[Policy, Policy] = ("agent", "env")
    with ThreadPoolExecutor(len(policies)) as pool:
        waiting = [pool.submit(_checkpoint, context, policy) for policy in policies]
        for done, (policy, made) in enumerate(zip(policies, waiting, strict=True)):
            context.progress(done, len(policies), "models")
            made.result()
            context.out.checkpoint(policy, context.work / policy)
    return {"base_tasks": len(base), "heldout_tasks": len(heldout)}


def _checkpoint(context: StageContext, policy: Policy) -> None:
    """Lay a policy's first checkpoint out in the work folder: copied, or warm-started."""
    config, output = context.config, context.work / policy
    given = context.inputs[f"{policy}_model"]
    if isinstance(given, FileRef):
        output.mkdir()
        for source in _model_files(Path(given.path)):
            shutil.copyfile(source, output / source.name)
        return
    from genenv_core.training.warmstart import WarmStartRequest

    trainer().warm_start(
        WarmStartRequest(
            policy=policy,
            domain_name=config.domain.name,
            domain_options=config.domain.options,
            output=output,
            settings=config.bootstrap,
            seed=seed_from(context.seed, "warm_start", policy) % 2**31,
            threads=config.compute.threads,
        )
    )


def _base_drafts(context: StageContext, domain: Domain) -> list[TaskDraft]:
    given = context.inputs["base_file"]
    count = context.config.data.base_tasks
    if not isinstance(given, FileRef):
        return domain.base_tasks(seed_from(context.seed, "base"), count)
    return [draft for draft, _ in read_programs(Path(given.path), domain, count)]


def read_programs(path: Path, domain: Domain, count: int) -> list[tuple[TaskDraft, str]]:
    """Return the first `count` tasks of a JSONL file and their programs.

    Raises DataError naming the file, the line, the field and the reason.
    """
    found: list[tuple[TaskDraft, str]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        if len(found) == count:
            break
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{where}: is no JSON ({error}): correct or remove the line") from error
        program = row.get("program") if isinstance(row, dict) else None
        if not isinstance(program, str):
            raise DataError(f'{where}: field "program" is {program!r}, expected a text')
        for item in domain.parse(program):
            if isinstance(item, Rejected):
                raise DataError(
                    f'{where}: field "program" {program[:80]!r} is {item.reason.value}: '
                    f"{item.detail or 'no task of domain ' + domain.name}"
                )
            found.append((item, program))
    if not found:
        raise DataError(f"{path}: holds no task")
    return found[:count]


def _data_file(name: str | None) -> FileRef | None:
    if name is None:
        return None
    path = Path(name).expanduser()
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    return FileRef(path=str(path), sha256=file_sha256(path))


def offline_input(config: RunConfig) -> FileRef | None:
    """Return the file of the arm `offline` with its digest, None for other arms."""
    return _data_file(config.data.offline_file)


def _hub_folder(name: str, revision: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        patterns = [f"*{suffix}" for suffix in MODEL_FILES]
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except Exception as error:  # the hub client raises its own, requests' and OS errors
        raise ModelError(
            f"model {name} at {revision[:12]} cannot be fetched: {type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}; name a local directory instead"
        ) from error


def _model_folder(policy: str, folder: Path) -> FileRef:
    where = f"models.{policy} {folder}"
    if not folder.is_dir():
        raise ModelError(f"{where}: no such directory")
    names = {path.name for path in folder.iterdir()}
    if "config.json" not in names:
        raise ModelError(f"{where}: no config.json: it is no Hugging Face checkpoint")
    if not names & {"tokenizer.json", "tokenizer.model", "vocab.json"}:
        raise ModelError(
            f"{where}: no tokenizer (tokenizer.json, tokenizer.model or vocab.json): save it "
            "there with tokenizer.save_pretrained"
        )
    if not any(name.endswith(".safetensors") for name in names):
        raise ModelError(
            f"{where}: no .safetensors weights: pickled weights are refused, load the model once "
            "where you trust it and save it with model.save_pretrained"
        )
    digests = [[path.name, file_sha256(path)] for path in _model_files(folder)]
    return FileRef(
        path=str(folder), sha256=hashlib.sha256(json.dumps(digests).encode()).hexdigest()
    )


def _model_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_file() and p.suffix in MODEL_FILES)


bootstrap = StageTask(STAGE, compute)
