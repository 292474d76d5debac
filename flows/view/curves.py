"""Curves over epochs: their questions, and the numbers for the charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flows.view.grouping import GROUPED, among, grouped
from flows.view.intervals import t975
from flows.view.looks import Look, looks, short_names
from flows.view.reading import Panel, Reader

MOST = 8
"""Most lines in one chart: as many as a person can tell apart."""

FEW = 3
"""Most lines with intervals and greedy lines in a chart: more would hide each other."""

ENOUGH = 3
"""Fewest runs of an arm for an interval: that of two would reach 12.7 standard errors to each side,
and hide every line."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One chart: a column of the question, its name for people, and what to see in it.

    `beside` is a second column, which the chart draws faintly, and `named` says what it is. A chart
    with a `band` shows alpha and k_min. `bars` says what the interval of a run is, '' for none. A
    `whole` share goes from 0 to 1.
    """

    column: str
    title: str
    caption: str
    bars: str = ""
    beside: str = ""
    named: str = ""
    share: bool = True
    whole: bool = False
    band: bool = False


GAIN = "Bars: 95 % interval of the change since epoch 0, task by task."
STARTED = "Dotted: the start. A bar above it: the agent got better."
CURVES = (
    Curve(
        "test", "Success on test tasks",
        "Share of the sampled attempts. Nothing learns from these tasks; epoch 0 is before any "
        "training.", GAIN, beside="greedy", named="Faint: greedy attempts.",
    ),
    Curve(
        "answer", "Probability of the answer",
        "How probable the agent makes the expected answer of a test task: the same question "
        "without the luck of sampling.", GAIN,
    ),
    Curve(
        "skill", "Success on new tasks",
        "Of what pi_env wrote, above the chance of a guess. pi_env does its work where the line "
        "stays in the band around alpha.",
        "Bars: Wilson's 95 % interval, which counts attempts at one task as alike.",
        whole=True, band=True,
    ),
    Curve("in_band", "New tasks near alpha",
          "Share of the new tasks within k_min of alpha: the higher, the better pi_env aims.",
          whole=True),
    Curve("no_signal", "Groups without signal",
          "Share of the new tasks whose attempts all got one reward: the agent learns nothing from "
          "them. Lower is better.", whole=True),
    Curve("difficulty", "Difficulty of new tasks",
          "Mean, by the domain's own measure. It rises when pi_env follows an agent that gets "
          "better.", share=False),
    Curve("similarity", "Similarity to earlier tasks",
          "How much a new task resembles the one that it is nearest to of the base tasks and the "
          "last epochs (generation.history_epochs), from 0 (no common word) to 1 (equal), on "
          "average. A rise: pi_env repeats itself.", beside="repeats",
          named="Faint: the share of repeats, which equal a task of any earlier epoch or resemble "
          "one by 0.9 or more.", whole=True),
    Curve("tokens", "Tokens of a response",
          "Mean tokens that the agent sampled in an attempt at a new task. A jump is a sign: it "
          "rambles, or gives up.", share=False),
    Curve("kl_env", "KL of pi_env",
          "How far pi_env has moved from the first pi_env, in nats a generation. A steep rise: it "
          "leaves what it wrote well at first.", share=False),
)  # fmt: skip

MEASURED = {"test": "sampled", "greedy": "greedy", "answer": "answer_probability"}
"""Columns with results on test tasks, and the measure of each."""

DOMAIN, ALL = "domain", "all domains"
"""Lines that are the domains of a run, and the name of the line of all of them."""

OF_DOMAIN = {
    "test": "sampled", "greedy": "greedy", "answer": "answer_probability", "skill": "skill",
    "in_band": "share_in_band", "no_signal": "1 - share_signal", "difficulty": "difficulty",
}  # fmt: skip
"""Charts with a line of each domain, and the column of each in the view `domains`."""

WITH_BARS = tuple(curve.column for curve in CURVES if curve.bars)
COLUMNS = tuple(name for curve in CURVES for name in (curve.column, curve.beside) if name)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: the run or group, its shortest name, its look, and the number of a group's runs."""

    name: str
    short: str
    look: Look
    runs: int | None = None


@dataclass(frozen=True, slots=True)
class Curves:
    """The question, the charts with something to draw, the lines, and data for the script.

    `bars` says whether charts draw intervals and greedy lines, `by` what a line is.
    """

    panel: Panel
    charts: tuple[Curve, ...]
    lines: tuple[Line, ...]
    data: dict[str, Any]
    bars: bool
    by: str

    @property
    def words(self) -> dict[str, str]:
        """Return descriptions of the columns that no table of the dictionary has."""
        found: dict[str, str] = {"line": f"The {GROUPED.get(self.by, self.by)} that a line is of."}
        for curve in CURVES:
            found[curve.column] = f"{curve.title}: {curve.caption}"
            if curve.beside:
                found[curve.beside] = f"{curve.title}: {curve.named}"
        for column in (name for name in self.panel.columns if name not in found):
            value, _, end = column.rpartition("_")
            if value in found and end in ("low", "high"):
                found[column] = f"{'Lower' if end == 'low' else 'Upper'} end of a bar of {value}."
        return found

    @property
    def note(self) -> str:
        """Return sentences that hold for all charts of several lines; '' for one run."""
        if self.by in GROUPED:
            said = [f"A line is the mean of the runs of an {GROUPED[self.by]}."]
            if (lines := len({row["line"] for row in self.panel})) > len(self.lines):
                said.append(f"The first {len(self.lines)} of {lines} are drawn.")
            if self.bars and any(row["runs"] >= ENOUGH for row in self.panel):
                said.append("Bars: its 95 % t interval over these runs.")
            if any(row["runs"] < ENOUGH for row in self.panel):
                said.append(
                    f"Where there are fewer than {ENOUGH} runs there is no interval: that of two "
                    "would reach 12.7 standard errors to each side."
                )
            return " ".join(said)
        if len(self.lines) > FEW:
            return f"With more than {FEW} lines the intervals are in the table alone."
        return ""

    def caption(self, curve: Curve) -> str:
        """Return sentences on what a chart shows and what to see in it."""
        said = [curve.caption]
        if self.beside(curve):
            said.append(curve.named)
        if curve.band:
            where = "The dashed line is alpha, the band k_min to both sides."
            nowhere = "The runs have different alphas or bands, so none is drawn."
            said.append(nowhere if self.data["alpha"] is None else where)
        if self.bars and self.by == "run" and curve.bars:
            said.append(curve.bars)
        if self.starts(curve):
            said.append(STARTED)
        return " ".join(said)

    def beside(self, curve: Curve) -> str:
        """Return the column that a chart draws faintly beside its own, '' for none."""
        lines = self.data["values"].get(curve.beside, {}).values() if self.bars else ()
        return curve.beside if any(value is not None for line in lines for value in line) else ""

    def changes(self, curve: Curve) -> bool:
        """Return whether the bars of a chart are intervals of the change since epoch 0."""
        return self.bars and self.by == "run" and curve.bars == GAIN

    def starts(self, curve: Curve) -> bool:
        """Return whether a chart marks the start of its one line, to compare its bars with."""
        return len(self.lines) == 1 and self.changes(curve)


def curves(reader: Reader, runs: Sequence[str], by: str = "run") -> Curves:
    """Return the curves of runs: a line for each, or the mean of each group; raises QueryError.

    Groups are runs of one `arm`, or of one arm with the same `settings`. By `domain` the lines are
    those of one run: one for each of its domains, and one for all.
    """
    many, apart = by in GROUPED, by == DOMAIN
    question = _by_group(runs, by) if many else _by_domain(runs) if apart else _by_run(runs)
    panel = reader.panel("curves", "Curves", question)
    lines_of = list(dict.fromkeys(row["line"] for row in panel))
    names = lines_of[:MOST] if many or apart else list(runs)
    bars = len(names) <= FEW and not apart
    epochs = sorted({row["epoch"] for row in panel})
    place = {epoch: index for index, epoch in enumerate(epochs)}
    values: dict[str, dict[str, list[float | None]]] = {}
    for column in panel.columns:
        if column.removesuffix("_low").removesuffix("_high") not in COLUMNS:
            continue
        if column not in COLUMNS and not bars:
            continue
        lines: dict[str, list[float | None]] = {name: [None] * len(epochs) for name in names}
        for row in panel:
            if row["line"] in lines:
                lines[row["line"]][place[row["epoch"]]] = row[column]
        values[column] = lines
    targets = {(row["alpha"], row["k_min"]) for row in panel}
    alpha, k_min = targets.pop() if len(targets) == 1 else (None, None)
    charts = tuple(
        curve
        for curve in CURVES
        if any(value is not None for line in values[curve.column].values() for value in line)
    )
    look, short = looks(names), short_names(names)
    counts = {
        name: max(row["runs"] for row in panel if row["line"] == name) if many else None
        for name in names
    }
    data = {
        "lines": names, "looks": [look[name].data for name in names], "epochs": epochs,
        "values": values, "alpha": alpha, "k_min": k_min, "bars": bars,
    }  # fmt: skip
    shown = tuple(Line(name, short[name], look[name], counts[name]) for name in names)
    return Curves(panel, charts, shown, data, bars, by)


def _by_run(runs: Sequence[str]) -> str:
    """Return the question with a row for each run and epoch, from epoch 0 on."""
    return f"{_each(runs)}\nSELECT * FROM each ORDER BY line, epoch"


def _by_domain(runs: Sequence[str]) -> str:
    """Return the question with a row for each domain and epoch, after those of all domains."""
    columns = ", ".join(f"{column} AS {name}" for name, column in OF_DOMAIN.items())
    return (
        f"{_each(runs)},\napart AS (\n    SELECT * REPLACE ('{ALL}' AS line) FROM each\n"
        f"    UNION ALL BY NAME SELECT d.domain AS line, d.epoch, {columns}, s.alpha, s.k_min\n"
        f"    FROM domains AS d JOIN settings AS s USING (run_id) WHERE d.{among(runs)}\n)\n"
        f"SELECT * FROM apart ORDER BY line <> '{ALL}', line, epoch"
    )


def _by_group(runs: Sequence[str], by: str) -> str:
    """Return the question for means over the runs of a group, with t intervals over these runs.

    A setting that differs between the runs is null, and so is the interval over too few runs.
    """
    half = (
        f"CASE WHEN count({{0}}) >= {ENOUGH} THEN quantile[count({{0}}) - 1] END "
        "* stddev_samp({0}) / sqrt(count({0}))"
    )
    means = ",\n    ".join(
        f"avg({name}) AS {name}, avg({name}) - {half.format(name)} AS {name}_low, "
        f"avg({name}) + {half.format(name)} AS {name}_high"
        for name in COLUMNS
    )
    target = ", ".join(
        f"CASE WHEN count(DISTINCT {name}) = 1 THEN any_value({name}) END AS {name}"
        for name in ("alpha", "k_min")
    )
    return (
        f"{_each(runs)},\ngrouped AS (\n{grouped(runs, by)}\n),\nstudent AS (\n"
        f"    SELECT list({t975('df')} ORDER BY df) AS quantile\n"
        f"    FROM range(1, {max(2, len(runs))}) AS t(df)\n)\n"
        f"SELECT g.arm AS line, epoch, count(*) AS runs,\n    {means},\n    {target}\n"
        "FROM each JOIN grouped AS g ON g.run_id = each.line, student\n"
        "GROUP BY g.arm, epoch, quantile ORDER BY g.arm, epoch"
    )


def _each(runs: Sequence[str]) -> str:
    """Return the beginning of a question: the values of each run and epoch, as `each`.

    The interval of a test result is that of its gain over epoch 0, task by task, so the difficulty
    of a task cancels. That of `skill` is the clustered one of p_hat, above chance.
    """
    of_runs = f"WHERE {among(runs)}"
    means = ", ".join(
        f"avg(value) FILTER (measure = '{measure}') AS {name}" for name, measure in MEASURED.items()
    )
    tested = [name for name in WITH_BARS if name in MEASURED]
    ends = ", ".join(
        f"any_value(gain_{end} - gain) FILTER (measure = '{MEASURED[name]}') AS {name}_{end}"
        for name in tested
        for end in ("low", "high")
    )
    test_columns = ", ".join(
        f"t.{name}, t.{name} + g.{name}_low AS {name}_low, t.{name} + g.{name}_high AS {name}_high"
        if name in tested
        else f"t.{name}"
        for name in MEASURED
    )
    skill_ends = ", ".join(
        f"CASE WHEN c.cluster_{end} IS NOT NULL "
        f"THEN greatest(0, (c.cluster_{end} - c.chance) / (1 - c.chance)) END AS skill_{end}"
        for end in ("low", "high")
    )
    return (
        "WITH tests AS (\n"
        f"    SELECT run_id, epoch, {means}\n"
        f"    FROM test_results {of_runs} GROUP BY run_id, epoch\n"
        "),\ngains AS (\n"
        f"    SELECT run_id, epoch, {ends}\n"
        f"    FROM test_gains {of_runs} GROUP BY run_id, epoch\n"
        "),\nplaces AS (\n"
        f"    SELECT run_id, epoch FROM epochs {of_runs}\n"
        "    UNION SELECT run_id, epoch FROM tests\n"
        "),\neach AS (\n"
        f"    SELECT p.run_id AS line, p.epoch, {test_columns},\n"
        f"        e.skill, {skill_ends},\n"
        "        e.share_in_band AS in_band, e.share_zero_signal AS no_signal, "
        "e.mean_difficulty AS difficulty, l.similarity, l.repeats, "
        "e.mean_response_tokens AS tokens, e.kl_env, e.seconds, "
        "s.alpha, s.k_min\n"
        "    FROM places AS p\n"
        "    JOIN settings AS s ON s.run_id = p.run_id\n"
        "    LEFT JOIN tests AS t ON t.run_id = p.run_id AND t.epoch = p.epoch\n"
        "    LEFT JOIN gains AS g ON g.run_id = p.run_id AND g.epoch = p.epoch\n"
        "    LEFT JOIN epochs AS e ON e.run_id = p.run_id AND e.epoch = p.epoch\n"
        "    LEFT JOIN repeats AS l ON l.run_id = p.run_id AND l.epoch = p.epoch\n"
        "    LEFT JOIN calibration AS c "
        "ON c.run_id = p.run_id AND c.epoch = p.epoch AND c.scope = 'epoch'\n"
        ")"
    )
