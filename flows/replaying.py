"""Replays a bundle: whether this installation can, and whether each stage comes out the same.

The run is carried out as any other, in a root of its own. A stage's output is compared as soon as
it is there, and the first one that differs ends the replay. Nothing in a bundle is run or imported.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from flows.bundling import plugin_modules, portable
from flows.preparing import RunInputs
from flows.stages import TASKS
from genenv_core.bundle import sources
from genenv_core.bundle.comparing import Here, installations, listed, unequal
from genenv_core.bundle.contents import Contents
from genenv_core.bundle.statement import GIVEN
from genenv_core.config.load import overridden, read_override
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.unions.teacher import EndpointTeacher, ModelTeacher
from genenv_core.config.stages import STAGES
from genenv_core.domains.registry import get_domain, is_built_in
from genenv_core.errors import (
    AlreadyExists,
    ConfigError,
    DomainError,
    GenenvError,
    NotFound,
    ReplayError,
)
from genenv_core.hiding import visible
from genenv_core.named_files import why_not_written
from genenv_core.storage import paths
from genenv_core.storage.records.draws import Draws, merge_draws
from genenv_core.storage.records.keys import difference
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.protocol import Store
from genenv_core.training.updates.algorithm import is_foreign
from schemas.enums import StageState
from tasks.stage.inputs import identities
from tasks.stage.key import parts_of
from tasks.stage.progress import Event

Place = tuple[int, str]


REACHES: dict[str, Callable[[RunConfig], bool]] = {
    "domain.name": lambda config: not is_built_in(config.domain.name, config.domain.options),
    "agent_update.algorithm": lambda config: is_foreign(config.agent_update),
    "teacher.url": lambda config: isinstance(config.teacher, EndpointTeacher),
    "compute.vllm.arguments": lambda config: bool(config.compute.vllm.arguments),
    # A model with a revision is one of the hub, from where it would be fetched.
    "models.agent": lambda config: config.models.agent_revision is not None,
    "models.env": lambda config: config.models.env_revision is not None,
    "teacher.model": lambda config: (
        isinstance(config.teacher, ModelTeacher) and config.teacher.revision is not None
    ),
}
"""Fields whose values load code of this machine or speak to an address, and when they do."""


class Marker(SealedRecord):
    """The bundle that a root was made to replay: the digest of its file."""

    bundle: str


@dataclass(frozen=True, slots=True)
class _NoInputs:
    """What a stage takes, left out: its key's other parts are compared before any work."""


def installed_here(contents: Contents, config: RunConfig | None) -> Here:
    """Return how this installation differs from the one that made a bundle."""
    files = sources.code_files()
    if config is not None:
        files |= sources.plugin_files(plugin_modules(config))
    return installations(
        (contents.machine, sources.machine()),
        (contents.facts.packages, sources.installed()),
        (contents.files, files),
    )


def replayable(contents: Contents, where: str, root: str, overrides: Sequence[str]) -> RunConfig:
    """Return the configuration that a replay carries out; raises ConfigError.

    What reaches beyond genenv is not taken from a bundle alone: the person says it too.
    """
    fields = {"root": root, "run_id": contents.facts.run_id}
    config = overridden(portable(contents.config), where, overrides=overrides, fields=fields)
    if config.benchmark.given:
        raise ConfigError(f"{where}: its run measures a model, and such runs have no bundles")
    said = {read_override(text, "--set")[0] for text in overrides}
    for field, reaches in REACHES.items():
        if reaches(config) and field not in said:
            value: Any = attrgetter(field)(config)
            shown = visible(value if isinstance(value, str) else json.dumps(value))
            raise ConfigError(
                f"{where}: its run has {field} {shown}, which loads code of this machine or "
                "speaks to an address, and a bundle may come from anybody: look at it, then say "
                f"it yourself: --set {shlex.quote(f'{field}={shown}')}"
            )
    return config


def check_keys(contents: Contents, config: RunConfig, here: Here) -> None:
    """Raise ConfigError, naming each reason, where stages would get other keys than in the bundle.

    All parts of the keys are compared but the outputs of other stages, which are not there yet.
    """
    where: defaultdict[str, list[str]] = defaultdict(list)
    own: dict[str, dict[str, Any]] = {}
    for (epoch, stage), manifest in contents.stages.items():
        if stage not in own:
            own[stage] = parts_of(TASKS[stage].stage, config, 0, _NoInputs())
        draw = contents.facts.draws.get(f"{stage}@{epoch}", 0)
        expected = {**own[stage], "epoch": epoch} | ({"draw": draw} if draw else {})
        for line in difference({**manifest.key_parts, "inputs": {}}, expected):
            if stage not in where[line]:
                where[line].append(stage)
    if not where:
        return
    coded = [stage for line, stages in where.items() if _is_code(line) for stage in stages]
    reasons = [
        f"{line} ({', '.join(stages)})"
        for line, stages in where.items()
        if not (_is_code(line) and here.code)
    ]
    if coded and here.code:
        reasons.insert(0, f"other code in {listed(here.code)} ({', '.join(coded)})")
    raise ConfigError(
        "nothing was computed, because stages would get other keys here: "
        f"{listed(reasons)}. {how_to_install(contents)}"
    )


def _is_code(line: str) -> bool:
    """Return whether a difference of keys is that of a stage's code."""
    return line.startswith("code ")


def check_given(contents: Contents, config: RunConfig) -> None:
    """Raise ConfigError where data or models that people gave the run are others, or not there."""
    wanted = contents.facts.given
    try:
        here = _given_here(config)
    except GenenvError as error:
        if isinstance(error, ConfigError | DomainError) or not wanted:
            raise
        digests = ", ".join(f"{name} {digest}" for name, digest in sorted(wanted.items()))
        raise ConfigError(
            f"{error}; the run was given {digests}: put it there, or name its place here with "
            f"--set {next(iter(sorted(wanted)))}=PATH"
        ) from error
    for name in sorted(wanted.keys() | here.keys()):
        if wanted.get(name) != here.get(name):
            raise ConfigError(
                f"{name} is not what the run was given: its digest is {here.get(name)}, and the "
                f"bundle names {wanted.get(name)}: name the right one with --set {name}=PATH"
            )


def _given_here(config: RunConfig) -> dict[str, str]:
    """Return the digest of each input that people give, by the field that names it."""
    domain = get_domain(config.domain.name, config.domain.options)
    read = RunInputs.read(config, domain)
    model = read.teacher.model if read.teacher else None
    found = {
        **identities(read.given),
        "offline": read.offline.sha256 if read.offline else None,
        "teacher": model.sha256 if model else None,
    }
    return {GIVEN[name]: str(value) for name, value in found.items() if value is not None}


def how_to_install(contents: Contents) -> str:
    """Return which genenv made a bundle, and how to have it, in a sentence."""
    facts = contents.facts
    commit = f", commit {facts.commit}" if facts.commit else ""
    return (
        f"The bundle is of genenv {facts.version}{commit}: `genenv replay BUNDLE --unpack DIR` "
        "writes its code and locks, and says how to install them"
    )


def open_root(store: Store, bundle: str, contents: Contents) -> None:
    """Note in a new root what is replayed in it; raises ConfigError for a root with other work.

    A replay computes. So its root is new, or that of the same replay, which then goes on.
    """
    mark, used = Marker(bundle=bundle), ""
    try:
        if Marker.from_bytes(store.read(paths.replay())) != mark:
            used = "another bundle was replayed there"
    except NotFound:
        used = "it has stages already" if store.names("stages") or store.names("runs") else ""
        if not used:
            try:
                store.create(paths.replay(), mark.to_bytes())
            except AlreadyExists:  # the same command beside this one
                open_root(store, bundle, contents)
                return
    if used:
        raise ConfigError(
            f"root {store.uri}: {used}, and a replay computes every stage itself: choose a new "
            "folder with --root, or remove this one"
        )
    if contents.facts.draws:  # also where an earlier call was killed before it noted them
        merge_draws(store, contents.facts.run_id, Draws(numbers=contents.facts.draws))


class ReplayComparison:
    """Listens to the stages of a replay; raises ReplayError in the first one that differs."""

    def __init__(self, contents: Contents, store: Store, here: Here, config: RunConfig) -> None:
        """Begin with nothing compared."""
        self._contents, self._here, self._config = contents, here, config
        self._store, self._log = store, RunLog(store, contents.facts.run_id)
        self._lock = threading.Lock()
        self.equal: set[Place] = set()
        self.reused: set[Place] = set()
        self.unequal: dict[Place, list[str]] = {}

    def __call__(self, event: Event) -> None:
        """Compare the stage that an event says is finished."""
        wanted = self._contents.stages.get((event.epoch, event.stage))
        if event.kind != "finished" or wanted is None:
            return
        key = self._log.keys(event.epoch)[event.stage]
        made = Manifest.from_bytes(self._store.read(paths.manifest(event.stage, key)))
        lines = unequal(wanted, made)
        with self._lock:
            if not lines:
                place = event.epoch, event.stage
                # One set of tasks serves all epochs: it is computed once, and reused by the others.
                if event.state is StageState.CACHED and place not in self.equal:
                    self.reused.add(place)
                self.equal.add(place)
                return
            self.unequal[event.epoch, event.stage] = lines
        raise ReplayError(self.said())

    @property
    def first(self) -> Place | None:
        """Return the first stage, in the order of a run, that differs; None if all are equal."""
        order = list(STAGES)
        return min(self.unequal, key=lambda one: (one[0], order.index(one[1])), default=None)

    def check_all(self) -> None:
        """Raise ReplayError unless every stage of the bundle was compared and is equal."""
        if self.unequal:
            raise ReplayError(self.said())
        missing = [one for one in self._contents.stages if one not in self.equal]
        if missing:
            epoch, stage = missing[0]
            raise ReplayError(
                f"{stage} of epoch {epoch} is in the bundle, and the replay ended before it"
            )

    def said(self) -> str:
        """Return the first stage that differs, how, and what the likely reason is."""
        place = self.first
        if place is None:
            return ""
        epoch, stage = place
        lines = self.unequal[place]
        return (
            f"not equal: {stage} of epoch {epoch} is the first stage that differs from the "
            f"bundle, after {len(self.equal)} equal ones: {listed(lines)}. {self._reason()}"
        )

    def _reason(self) -> str:
        if not promised(self._config):
            return (
                "Bits are promised for CPUs, one thread and the engine transformers; this run "
                "used others"
            )
        if self._here.bits:
            return f"Likely because of another processor: {listed(self._here.bits)}"
        if self._here.versions:
            return f"Likely because of other versions: {listed(self._here.versions)}"
        return (
            "Processor, versions and the code of the stages are as the bundle says: either a stage "
            "is not deterministic here, or the bundle is not of what it says"
        )


def promised(config: RunConfig) -> bool:
    """Return whether equal bits are promised for a run with this configuration."""
    compute = config.compute
    own = config.training.one_process_on_cpus and not isinstance(config.teacher, EndpointTeacher)
    return own and (compute.engine, compute.device, compute.threads) == ("transformers", "cpu", 1)


def unpack(contents_files: Mapping[str, bytes], folder: Path) -> None:
    """Write members below a new folder; raises ConfigError for one with files in it."""
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise ConfigError(f"--unpack {folder}: is there already: name a new folder")
    try:
        for name, content in contents_files.items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    except OSError as error:
        why = why_not_written(folder, error, folder=True)
        raise ConfigError(f"--unpack {folder}: {why}") from error
