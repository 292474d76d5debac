"""Finds the examples of a warm start before work, and again in the stage.

`warm_start.examples` names a file, or `run:RUN` or `run:RUN@EPOCH`: a run of this root or of one in
`roots.read`. Without it the domain makes the examples.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.benchmark import OF_RUN
from genenv_core.config.sections.data import DomainConfig
from genenv_core.domains.protocol import Domain, SeedData, SeedExample
from genenv_core.errors import ConfigError, DataError
from genenv_core.exchange.base_data import heldout_fingerprints
from genenv_core.exchange.examples.files import read_examples
from genenv_core.exchange.external import data_file
from genenv_core.storage.records.manifest import ExamplesRef, FileRef
from genenv_core.storage.records.runs import RunLog, is_there, list_runs, no_such_run, pinned
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.protocol import Store
from genenv_core.types import Policy

FIELD = "warm_start.examples"

Examples = dict[Policy, list[SeedExample]]


def warm_start_input(config: RunConfig, domain: Domain) -> FileRef | ExamplesRef | None:
    """Return where the examples of a warm start lie, with their digest; None for the domain's own.

    Raises ConfigError where neither the domain nor the configuration has examples, and for a run
    that is unknown or of another domain; DataError for a bad row, and where a given policy has too
    few.
    """
    given, name = config.warm_started, config.warm_start.examples
    if not given:
        return None
    if name is not None:
        # Bad data stops a run before any work, and before a directory is read for its digest.
        return _read(config, domain, name, given)[1] or data_file(name)
    if not isinstance(domain, SeedData):
        raise ConfigError(
            f"warm_start.steps {config.warm_start.steps}: the domain {config.domain.name} makes no "
            "examples (agent_examples, env_examples): name a file of them or a run (run:RUN) in "
            f"{FIELD}, or set warm_start.steps=0"
        )
    return None


def named_examples(
    config: RunConfig, domain: Domain, wanted: Collection[Policy]
) -> Examples | None:
    """Return the examples that `warm_start.examples` names, None where it names none.

    Raises as `warm_start_input`.
    """
    name = config.warm_start.examples
    return None if name is None else _read(config, domain, name, wanted)[0]


def examples_at(ref: FileRef | ExamplesRef, heldout: Collection[str]) -> Examples:
    """Return the examples that a stage was given.

    `heldout` are the fingerprints of the tasks that its run is measured on. Raises DataError where
    a stored run holds other examples than when the stage's run was prepared.
    """
    if isinstance(ref, FileRef):
        return read_examples(Path(ref.path), ())
    from genenv_core.exchange.examples.runs import digest_of, examples_of_run  # loads DuckDB

    store = open_store(ref.root, writable=False)
    found = examples_of_run(store, ref.run_id, ref.epoch, heldout)
    if digest_of(found) != ref.sha256:
        raise DataError(
            f"{FIELD} {OF_RUN}{ref.run_id}: the run holds other examples than when this run began "
            f"(digest {digest_of(found)[:12]}, not {ref.sha256[:12]}): start this run again"
        )
    return found


def _read(
    config: RunConfig, domain: Domain, name: str, wanted: Collection[Policy]
) -> tuple[Examples, ExamplesRef | None]:
    """Return examples by the name that people gave them, and the reference of a run's."""
    if not name.startswith(OF_RUN):
        return read_examples(Path(name).expanduser(), wanted), None
    from genenv_core.exchange.examples.runs import check_enough, digest_of, examples_of_run

    store, run, epoch = _run_named(config, name)
    theirs = DomainConfig.model_validate(RunLog(store, run).info().config["domain"])
    if theirs != config.domain:
        raise ConfigError(
            f"{FIELD} {name}: the run is of domain {theirs.name} {theirs.options}, and this one of "
            f"{config.domain.name} {config.domain.options}: name a run of the same domain and "
            "options"
        )
    heldout = heldout_fingerprints(domain, config.seed, config.data)
    found = examples_of_run(store, run, epoch, heldout)
    check_enough(name, found, wanted, epoch)
    return found, ExamplesRef(root=store.uri, run_id=run, epoch=epoch, sha256=digest_of(found))


def _run_named(config: RunConfig, name: str) -> tuple[Store, str, int]:
    """Return the root that has a run, the run, and the last of its epochs that is read."""
    run = name.removeprefix(OF_RUN).partition("@")[0]
    if run == config.run_id:
        raise ConfigError(f"{FIELD} {name} is this run itself: name another run")
    stores = [open_store(uri, writable=False) for uri in (config.root, *config.roots.read)]
    store = next((one for one in stores if is_there(one, run)), None)
    if store is None:
        known = sorted({known for one in stores for known in list_runs(one)})
        where = "in this root or roots.read" if config.roots.read else "in this root"
        raise ConfigError(f"{FIELD}: {no_such_run(run, known, where)}")
    return store, run, int(pinned(store, FIELD, name).rpartition("@")[2])
