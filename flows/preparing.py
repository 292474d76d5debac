"""Checks, before the first stage of a run, everything that would end it later.

The checks that need nothing come first, then those of this machine, of the files that people give,
of the root, the domain and the models, and that of a Prefect server last. Each function imports the
libraries that it needs. Work pools and measurements alone load Prefect, so genenv refuses a wrong
word in a moment.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from flows.running.environment import check_home
from flows.running.previous import live_api
from flows.running.standstill import standstills_said
from genenv_core.benchmarks.measuring.request import of_agent
from genenv_core.config.arms import ARMS
from genenv_core.config.branching import branch_name
from genenv_core.config.load import run_name
from genenv_core.config.run_options import NO_OPTIONS, RunOptions
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.placement import INLINE
from genenv_core.config.sections.unions.benchmark import MeasuredEndpoint
from genenv_core.config.stages import EPOCH_STAGES, MEASURES, STAGES
from genenv_core.domains.protocol import Domain, SeedData, fixed_sets
from genenv_core.domains.registry import get_domain, is_built_in
from genenv_core.errors import ConfigError
from genenv_core.exchange.examples.given import warm_start_input
from genenv_core.exchange.external import (
    Given,
    given_to,
    offline_input,
    probes_of,
    teacher_input,
)
from genenv_core.machine.allowances import check_allowances
from genenv_core.play.checking.domain_checks import check_shortly
from genenv_core.storage.records.manifest import ExamplesRef, FileRef, TeacherRef
from genenv_core.storage.store.opening import home_of, open_once
from genenv_core.storage.store.protocol import Store
from genenv_core.training.updates.algorithm import check_passes, get_algorithm, is_foreign
from genenv_core.types import Policy
from tasks.tracking.client import check_tracking

if TYPE_CHECKING:
    from genenv_core.play.template.probe import Probe
    from genenv_core.spending.needs import Need
    from genenv_core.storage.records.branches import Branch
    from genenv_core.storage.records.draws import Draws
    from tasks.benchmark import BenchmarkInputs

CHECKED = 20
"""Tasks of a domain of one's own that are looked at before a run."""


@dataclass(frozen=True, slots=True)
class RunInputs:
    """What a run reads from outside of its root, None for what nobody gives it.

    Args:
        given: the base data and the models that people give.
        examples: the file or the stored run that has the examples of a warm start.
        offline: the file that has the tasks of the arm offline.
        teacher: the model that writes the run's set of tasks.
    """

    given: Given
    examples: FileRef | ExamplesRef | None
    offline: FileRef | None
    teacher: TeacherRef | None

    @classmethod
    def read(cls, config: RunConfig, domain: Domain) -> RunInputs:
        """Return those of a configuration and its domain; raises GenenvError for a bad one."""
        # Models are last, because their libraries take seconds to load.
        examples, offline = warm_start_input(config, domain), offline_input(config)
        return cls(given_to(config, domain), examples, offline, teacher_input(config))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that may start: its configuration, with its name, and what it starts from.

    Args:
        config: the resolved configuration, with a run id.
        options: what was asked for beside it.
        store: its root, opened.
        inputs: what it reads from outside of its root.
        branch: what it takes over from another run.
        draws: the draws of its stages with the one that is forced, None without a forced one.
        updates: what each update needs of a device; empty for a run that computes nothing here.
        fixed: the sizes of its fixed sets by domain, as a run that computes is opened with.
    """

    config: RunConfig
    options: RunOptions
    store: Store
    inputs: RunInputs
    branch: Branch | None
    draws: Draws | None
    updates: list[Need]
    fixed: dict[str, int]

    @property
    def probes(self) -> dict[str, Probe]:
        """Return what each given model answered when it was asked how it is used, by its field."""
        return probes_of(self.config)

    def check_memory(self) -> None:
        """Raise ConfigError when an update does not fit into its device."""
        from genenv_core.spending.needs import check_needs

        check_needs(self.config, self.updates)


@dataclass(frozen=True, slots=True)
class PreparedMeasurement:
    """A measurement that may start: its configuration, with its name, and what is measured.

    `fixed` is as in `Prepared`.
    """

    config: RunConfig
    store: Store
    inputs: BenchmarkInputs
    fixed: dict[str, int]


def prepare(
    config: RunConfig,
    options: RunOptions = NO_OPTIONS,
    *,
    computes: bool = True,
    judges_memory: bool = True,
) -> Prepared:
    """Return a run that may start; raises GenenvError for whatever would end it later.

    Args:
        config: the resolved configuration.
        options: what is asked for beside it.
        computes: False for what only looks at keys, such as a bundle: this machine, the servers,
            other roots and the domain's behaviour are then not asked.
        judges_memory: False where the needs of the updates are shown first; `check_memory` follows.
    """
    if config.benchmark.given:
        raise ConfigError(
            "section benchmark: a model is measured by `genenv eval`, which makes such a "
            "configuration itself: remove the section"
        )
    point = options.point
    name = branch_name(config, point) if point else run_name(config, "run")
    config = config.model_copy(update={"run_id": name})
    if computes:
        _check_place(config)
    # No folder is made for a run that is refused before; one with such options has its root.
    opened = _opened(config, options, asks=computes) if point or options.force else None
    # One for all checks: where a server plays it, each opening asks the server.
    domain = get_domain(config.domain.name, config.domain.options)
    inputs = RunInputs.read(config, domain)
    store, branch, draws = opened or _opened(config, options, asks=computes)
    updates: list[Need] = []
    fixed: dict[str, int] = {}
    if computes:
        _check_measured(config)
        fixed = _checked_domain(config, domain)
        _check_seed_data(config, domain)
        _check_algorithm(config)
        if config.grpo.attribution:
            from tasks.policies.attribution import answering  # loads Prefect

            answering(domain)
        from genenv_core.spending.needs import needs

        updates = needs(config, inputs.given, domain)
    made = Prepared(config, options, store, inputs, branch, draws, updates, fixed)
    if judges_memory:
        made.check_memory()
    if computes:
        _check_work_pools(config)
    return made


def prepare_measurement(config: RunConfig, *, computes: bool = True) -> PreparedMeasurement:
    """Return a measurement that may start; arguments and errors are those of `prepare`."""
    if computes:
        _check_place(config)
    from tasks.policies.measured import named

    store = _root(config, asks=computes)
    config = named(config)
    domain = get_domain(config.domain.name, config.domain.options)
    made = PreparedMeasurement(config, store, _measured(config, domain), _fixed(config, domain))
    if computes:
        _check_work_pools(config)
    return made


def _check_place(config: RunConfig) -> None:
    """Raise GenenvError for what the configuration or this machine shows without any file."""
    check_home(home_of(config.root))
    check_allowances()
    check_tracking(config)
    if config.execution.test_fault:
        from tasks.stage.execution import refuse_outside_tests

        refuse_outside_tests(config.execution.test_fault)
    _check_gpu(config)
    places = config.placement.work_pools()
    if not places or os.environ.get("PREFECT_API_URL"):
        return
    api = live_api(home_of(config.root).resolve())
    if api is None:
        stage, name = next(iter(places.items()))
        raise ConfigError(
            f"placement.{stage} {name!r} is a work pool of a Prefect server, and there is none: "
            "set PREFECT_API_URL to one's API (http://HOST:4200/api), start `genenv up` on this "
            f"root, or set placement.{stage}=inline"
        )
    os.environ["PREFECT_API_URL"] = api  # before Prefect is loaded, which reads it once


def _check_gpu(config: RunConfig) -> None:
    """Raise ConfigError where a stage would sample on a GPU of this machine, and there is none."""
    if config.compute.device != "cuda":
        return
    from genenv_core.training.memory.devices import gpus

    stages = [MEASURES] if config.benchmark.given else EPOCH_STAGES
    here = [name for name in stages if STAGES[name].samples and config.placement.of(name) == INLINE]
    if here and not gpus():
        raise ConfigError(
            f"{here[0]} samples on a GPU (compute.device cuda) and this machine has none: set "
            f"placement.{here[0]} to a work pool, or compute.device=cpu"
        )


def _check_work_pools(config: RunConfig) -> None:
    """Raise GenenvError unless a server answers and has what the configured placement needs."""
    if config.placement.work_pools():
        from flows.running.outcome import explained
        from tasks.placement.api import check_placement  # loads Prefect

        with explained(None):
            check_placement(config)


def _root(config: RunConfig, *, asks: bool) -> Store:
    """Return the root; raises GenenvError for one that cannot be used.

    With `asks` so it does for one to read from, which a run at work can do without.
    """
    check_home(home_of(config.root))  # before the store makes the folder
    store = open_once(config.root)
    if asks:
        from genenv_core.storage.records.readers import check_readers

        check_readers(config.root, config.roots.read)
    return store


def _opened(
    config: RunConfig, options: RunOptions, *, asks: bool
) -> tuple[Store, Branch | None, Draws | None]:
    """Return the root, what the run takes over in it, and its draws with the forced one.

    Raises ConfigError for what cannot be asked of a run: to branch off where the settings do not
    fit, to end in what it takes over, or another draw of what was never drawn.
    """
    from genenv_core.storage.records.branches import find_branch
    from genenv_core.storage.records.draws import next_draws
    from genenv_core.storage.sql.sources import look_at_runs

    store = _root(config, asks=asks)
    if asks:
        look_at_runs(store)
    option = f"{options.said_in}{{}}".format
    branch = find_branch(store, config, options.point, option("from"))
    if branch is not None:
        branch.point.check_later(options.until, option("until"))
        branch.point.check_later(options.force, option("force"))
    if options.force is None:
        return store, branch, None
    stage, epoch = options.force.stage, options.force.epoch
    return store, branch, next_draws(store, str(config.run_id), stage, epoch)


def _check_measured(config: RunConfig) -> None:
    """Raise ConfigError or DataError where a run's agent could not be measured later."""
    from genenv_core.benchmarks.measuring.items import benchmark_of

    for one in of_agent(config, config.epochs):
        benchmark_of(get_domain(one.domain.name, one.domain.options))


def _checked_domain(config: RunConfig, domain: Domain) -> dict[str, int]:
    """Return the sizes of a run's fixed sets by domain; genenv's own domains have none.

    Raises ConfigError where a domain of one's own has a fault that shows in a moment.
    """
    if is_built_in(config.domain.name, config.domain.options):
        return {}
    data = config.data
    with standstills_said(config, domain):
        check_shortly(
            domain,
            base=0 if data.base_file else min(data.base_tasks, CHECKED),
            heldout=min(data.validation_tasks + data.test_tasks, CHECKED),
        )
        return _fixed(config, domain)


def _fixed(config: RunConfig, domain: Domain) -> dict[str, int]:
    name, options = config.domain.name, config.domain.options
    return {} if is_built_in(name, options) else fixed_sets(name, domain)


def _check_seed_data(config: RunConfig, domain: Domain) -> None:
    """Raise ConfigError where tiny models are to be made of a domain that has no examples."""
    made = [policy for policy in Policy if getattr(config.models, policy.value) == "bootstrap"]
    if made and not isinstance(domain, SeedData):
        raise ConfigError(
            f"models.{made[0].value} 'bootstrap': domain {config.domain.name} has no seed data "
            "(agent_examples, env_examples) for tiny models to begin with: give the domain these "
            f"methods, or set models.{made[0].value} to a checkpoint directory or a hub id"
        )


def _check_algorithm(config: RunConfig) -> None:
    """Raise GenenvError where an algorithm of one's own has a fault that a few numbers show."""
    update = config.agent_update
    if not (is_foreign(update) and ARMS[config.arm].trains_agent):
        return
    algorithm = get_algorithm(update.algorithm, update.options)
    check_passes(update.algorithm, algorithm, config.grpo.passes)
    from genenv_core.training.own.checking import check_losses  # loads torch

    check_losses(update.algorithm, algorithm)


def _measured(config: RunConfig, domain: Domain) -> BenchmarkInputs:
    """Return what is measured; raises ConfigError and ModelError."""
    from genenv_core.benchmarks.measuring.items import benchmark_of, check_categories
    from tasks.benchmark import BenchmarkInputs  # loads Prefect
    from tasks.policies.measured import endpoint_of, model_of

    given = config.measured
    if not given.certifies:
        check_categories(benchmark_of(domain), given.categories)
    if isinstance(given, MeasuredEndpoint):
        return BenchmarkInputs(None, endpoint_of(config, given))
    model, simulator = partial(model_of, config), None
    if given.simulator is not None:
        simulator = model("benchmark.simulator", given.simulator, Policy.ENV)
    return BenchmarkInputs(model("benchmark.model", given.model, Policy.AGENT), None, simulator)
