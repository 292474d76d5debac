"""The outcome of a run and its findings: one record, which every page and command shows.

The page of a run, its report, `genenv status`, the last lines of `genenv run` and the summary of a
flow run take their numbers and sentences from here. This module takes them from the views
`outcomes` and `findings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from genenv_core.domains.registry import SEVERAL
from genenv_core.report.fixed_sets import FixedSet
from genenv_core.report.words import (
    MEASURES,
    SHORT_MEASURES,
    count,
    duration,
    first_to_last,
    percent,
    signed,
)
from genenv_core.storage.sql.catalog import query, tables_named
from genenv_core.storage.sql.duck import text
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.protocol import Store

RECENT = 2
"""Newest epochs whose findings count as of now; older ones are history."""

TOLD_HERE = ("generate_tasks", "rollout")
"""Stages whose warnings of `epoch.trouble` are findings too, once the epoch has ended."""

RULES = {
    "no_task": {"no_task"},
    "all_broken": {"broken"},
    "half_broken": {"broken"},
    "endless": {"cut_off"},
    "narrow": {"narrow", "one_family"},
}
"""By name of such a fact: the rules whose findings say the same."""

SEVERITIES = ("failure", "warning", "note")
"""How grave findings are, the gravest first."""


@dataclass(frozen=True, slots=True)
class RunFinding:
    """One rule of the view `findings` that a run breaks, over all epochs that break it.

    `words`, `advice` and `query` are those of the newest such epoch.
    """

    rule: str
    subject: str | None
    severity: str
    first_epoch: int
    last_epoch: int
    epochs: int
    words: str
    advice: str
    query: str

    @property
    def when(self) -> str:
        """Return the epochs in words, such as `epochs 4 to 6`."""
        if self.epochs == 1:
            return f"epoch {self.last_epoch}"
        all_between = self.last_epoch - self.first_epoch + 1 == self.epochs
        which = f"epochs {first_to_last(self.first_epoch, self.last_epoch)}"
        return which if all_between else f"{self.epochs} of {which}"

    @property
    def line(self) -> str:
        """Return when, what is wrong and what to try, on one line."""
        return f"{self.when}: {self.words}; {self.advice}"


@dataclass(frozen=True, slots=True)
class DomainOutcome:
    """The outcome of one of several domains: the newest epoch in the view `domains`.

    `value` is in the measure of the whole run, `start` the same before training.
    """

    domain: str
    start: float | None
    value: float | None
    tasks: int | None
    p_hat: float | None
    share_in_band: float | None
    share_signal: float | None

    def line(self, measure: str | None) -> str:
        """Return the outcome on one line; `measure` is that of the run."""
        said = list[str]()
        if measure and self.value is not None:
            start = "" if self.start is None else f"{self.start:.3f} -> "
            said.append(f"{SHORT_MEASURES[measure]} {start}{self.value:.3f}")
        if self.p_hat is not None:
            said.append(
                f"success {self.p_hat:.2f} on {self.tasks} new tasks, "
                f"{percent(self.share_in_band)} of them in the band, "
                f"{percent(self.share_signal)} of the groups with signal"
            )
        return f"{self.domain}: {', '.join(said) or 'nothing yet'}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row of the view `outcomes`, its tokens of the view `spent`, and the run's findings.

    `domains` are those of a run of several, `fixed_sets` those domains whose tasks are a fixed set.
    """

    run_id: str
    arm: str
    epochs: int
    planned: int
    epoch: int | None
    measure: str | None
    start: float | None
    value: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    p_hat: float | None
    skill: float | None
    alpha: float | None
    k_min: float | None
    share_in_band: float | None
    share_signal: float | None
    seconds: float | None
    epochs_at_work: int
    tokens: int | None
    findings: tuple[RunFinding, ...] = ()
    domains: tuple[DomainOutcome, ...] = ()
    fixed_sets: tuple[FixedSet, ...] = ()

    def says(self, fact: str, epoch: int) -> bool:
        """Return whether a finding of this epoch says the same as this fact of its stages."""
        rules = RULES.get(fact, ())
        return any(
            one.rule in rules and one.first_epoch <= epoch <= one.last_epoch
            for one in self.findings
        )

    @property
    def recent(self) -> list[RunFinding]:
        """Return the findings of the newest epochs."""
        return [one for one in self.findings if one.last_epoch > (self.epoch or 0) - RECENT]

    @property
    def earlier(self) -> list[RunFinding]:
        """Return the findings of epochs before those."""
        return [one for one in self.findings if one not in self.recent]

    @property
    def values(self) -> dict[str, Any]:
        """Return `outcome` and beside it `findings`, as JSON values.

        A run of several domains has `domains` too, a run over a fixed set `fixed_sets`.
        """
        values = asdict(self)
        findings = values.pop("findings")
        some = {name: values.pop(name) for name in ("domains", "fixed_sets")}
        apart = {name: rows for name, rows in some.items() if rows}
        return {"outcome": values, "findings": findings, **apart}

    @property
    def lines(self) -> list[str]:
        """Return the outcome as lines of text, for a terminal."""
        lines, interval = list[str](), ""
        if self.gain_low is not None:
            interval = f" [{self.gain_low:+z.3f}, {self.gain_high:+z.3f}]"
        if self.measure and self.value is not None:
            what = f"{SHORT_MEASURES[self.measure]} on the test tasks"
            if self.gain is None:
                lines.append(f"{what}: {self.value:.3f} before training")
            else:
                gain = f"gain {self.gain:+z.3f}{interval}"
                lines.append(f"{what}: {self.start:.3f} -> {self.value:.3f}, {gain}")
        if self.skill is not None:
            lines.append(
                f"new tasks: success {self.skill:.2f}"
                + ("" if self.alpha is None else f" for a target of {self.alpha:.2f}")
                + f", {percent(self.share_in_band)} of them in the band, "
                f"{percent(self.share_signal)} of the groups with signal"
            )
        lines += [one.line(self.measure) for one in self.domains]
        lines += [one.line for one in self.fixed_sets]
        if self.seconds_an_epoch and self.tokens:
            took, tokens = duration(self.seconds_an_epoch), count(self.tokens // self.epochs)
            lines.append(f"an epoch took {took} and {tokens} tokens on average{self.reused}")
        return lines

    @property
    def seconds_an_epoch(self) -> float | None:
        """Return the mean time of the epochs that the run worked on, None without such epochs."""
        return (self.seconds or 0) / self.epochs_at_work if self.epochs_at_work else None

    @property
    def reused(self) -> str:
        """Return how many epochs the run reused, which count in no time; else ''."""
        reused = self.epochs - self.epochs_at_work
        return f", {reused} of {self.epochs} reused" if reused else ""


def figures(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the numbers of an outcome in words, by short names; '' for an unknown one.

    `row` has columns of the view `outcomes`, and `tokens` where the run counted them.
    """

    def known(*names: str) -> bool:
        return all(row.get(name) is not None for name in names)

    target = f" ({row['alpha']:g})" if known("alpha") else ""
    ends = [f"{row[name]:.3f}" for name in ("start", "value") if known(name)]
    return {
        "gain": signed(row.get("gain")),
        "interval": f"[{signed(row['gain_low'])}, {signed(row['gain_high'])}]"
        if known("gain_low", "gain_high") else "",
        "measure": SHORT_MEASURES[row["measure"]] if known("measure") else "",
        "start → last": " → ".join(ends),
        "p_hat (α)": f"{row['p_hat']:.2f}{target}" if known("p_hat") else "",
        "signal": percent(row.get("share_signal")),
        "time": duration(row["seconds"]) if row.get("seconds") else "",
        "tokens": count(row["tokens"]) if row.get("tokens") else "",
        "epochs": how_far(row),
    }  # fmt: skip


def how_far(row: Mapping[str, Any]) -> str:
    """Return how many of its epochs a run has finished, of a measurement how many of its items.

    `row` has `epochs` and `planned` of the view `outcomes`, and `items` and `of_items` of the view
    `measured`, None for a run that trains; '' where nothing is known.
    """
    if row.get("items") is not None:
        return f"{row['items']} of {row['of_items']} items" if row["of_items"] else "no item yet"
    if row.get("epochs") is None or row.get("planned") is None:
        return ""
    return f"{row['epochs']} of {row['planned']}"


@dataclass(frozen=True, slots=True)
class Headline:
    """One number at the head of a page, with a note to compare it by."""

    label: str
    value: str
    note: str


def outcome_query(run: str) -> str:
    """Return the query whose only row is the outcome of a run."""
    return (
        "SELECT o.*, s.tokens,\n"
        "    (SELECT list(struct_pack(domain, tasks, played) ORDER BY domain) FROM fixed_sets AS f"
        "\n    WHERE f.run_id = o.run_id) AS fixed_sets\nFROM outcomes AS o\n"
        "LEFT JOIN spent AS s ON s.run_id = o.run_id AND s.epoch = o.epoch\n"
        f"WHERE o.run_id = {text(run)}"
    )


def findings_query(run: str) -> str:
    """Return the query for the findings of a run, a row a rule, the newest and gravest first."""
    order = ", ".join(map(text, SEVERITIES))
    return (
        "SELECT rule, subject, severity, min(epoch) AS first_epoch, max(epoch) AS last_epoch, "
        "count(*) AS epochs,\n    arg_max(words, epoch) AS words, "
        "arg_max(advice, epoch) AS advice, arg_max(query, epoch) AS query\n"
        f"FROM findings WHERE run_id = {text(run)}\nGROUP BY rule, subject, severity\n"
        f"ORDER BY last_epoch DESC, list_position([{order}], severity), rule, subject"
    )


def domains_query(run: str, measure: str | None) -> str:
    """Return the query for the success in each domain of a run, at the start and at the end."""
    value = measure if measure in SHORT_MEASURES else "NULL"
    return (
        f"SELECT domain, arg_min({value}, epoch) FILTER (epoch = 0) AS start,\n"
        f"    arg_max({value}, epoch) AS value, arg_max(tasks, epoch) AS tasks,\n"
        "    arg_max(p_hat, epoch) AS p_hat, arg_max(share_in_band, epoch) AS share_in_band,\n"
        "    arg_max(share_signal, epoch) AS share_signal\n"
        f"FROM domains WHERE run_id = {text(run)}\nGROUP BY domain ORDER BY domain"
    )


def tables_of_outcome() -> set[str]:
    """Return the tables that these queries read."""
    return tables_named(outcome_query("") + findings_query("") + domains_query("", None))


def outcome_of(
    row: Mapping[str, Any],
    findings: Iterable[Mapping[str, Any]],
    domains: Iterable[Mapping[str, Any]] = (),
) -> Outcome:
    """Make the record of the rows of these queries."""
    return Outcome(
        **{name: value for name, value in row.items() if name != "fixed_sets"},
        findings=tuple(RunFinding(**one) for one in findings),
        domains=tuple(DomainOutcome(**one) for one in domains),
        fixed_sets=tuple(FixedSet(**one) for one in row["fixed_sets"] or ()),
    )


def read_outcome(con: duckdb.DuckDBPyConnection, run: str) -> Outcome:
    """Return the record of a run from an open connection; raises QueryError."""
    (row,) = query(con, outcome_query(run)).to_dicts()
    findings = query(con, findings_query(run)).to_dicts()
    ((domain,),) = query(con, f"SELECT domain FROM runs WHERE run_id = {text(run)}").iter_rows()
    if domain != SEVERAL:
        return outcome_of(row, findings)
    return outcome_of(row, findings, query(con, domains_query(run, row["measure"])).to_dicts())


def outcome_of_run(store: Store, run: str) -> Outcome:
    """Return the record of a run in a store; raises QueryError for an unknown run."""
    with open_tables(store, [run], tables=tables_of_outcome()) as connection:
        return read_outcome(connection, run)


def headlines(outcome: Outcome) -> list[Headline]:
    """Return the numbers that sum a run up, as far as they are known."""
    found, one = list[Headline](), outcome
    if one.measure and one.value is not None:
        way = "before training"
        if one.gain is not None and one.start is not None:
            way = f"{one.start:.3f} before training"
        found.append(Headline(f"{MEASURES[one.measure]}, test tasks", f"{one.value:.3f}", way))
    if one.gain is not None:
        found.append(Headline("gain", signed(one.gain), _interval(one)))
    if one.skill is not None:
        goal = "" if one.alpha is None else f"target {percent(one.alpha)}, "
        note = f"{goal}{percent(one.share_in_band)} in the band"
        found.append(Headline("success on new tasks", percent(one.skill), note))
    if one.share_signal is not None:
        note = "of new tasks; pi_agent learns from no other"
        found.append(Headline("groups with signal", percent(one.share_signal), note))
    for fixed in one.fixed_sets:
        note = f"tasks of {fixed.domain} played; pi_env chooses among them and writes none"
        found.append(Headline("fixed set", f"{fixed.played} of {fixed.tasks}", note))
    if one.seconds and one.seconds_an_epoch:
        each = f"{duration(one.seconds_an_epoch)} an epoch, bootstrap left out{one.reused}"
        found.append(Headline("time at work", duration(one.seconds), each))
    if one.tokens and one.epochs:
        note = f"{count(one.tokens // one.epochs)} an epoch, of tasks and attempts with prompts"
        found.append(Headline("tokens", count(one.tokens), note))
    return found


def _interval(outcome: Outcome) -> str:
    since = "paired by task"
    if outcome.gain_low is None:
        return since
    return f"{signed(outcome.gain_low)} to {signed(outcome.gain_high)} (95\u00a0%), {since}"
