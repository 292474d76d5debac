"""What the views cost beside raw DuckDB, at 1e6 and 1e7 traces: time, single traces, memory.

Each question is asked in turn through genenv's views and as SQL that a person would write by hand
over `read_parquet` of the very same files, without run_id and arm. Both must give the same rows.
The median of the ratios of fifteen alternating repetitions is what counts.

Run `python -m tests.bench scale [TRACES ...]`, for example `python -m tests.bench scale 1e6`.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
from polars.testing import assert_frame_equal

from genenv_core.pools import connect, frame
from genenv_core.storage.records.parquet import to_parquet
from genenv_core.storage.sql.sources import source
from genenv_core.storage.store.local import LocalStore
from schemas.validate import validate
from tests.bench.storage import seconds, table
from tests.bench.synthetic import K_MIN, RUN, Shape, build, epoch_tables

SHAPES = {1_000_000: Shape(1_000_000, 100), 10_000_000: Shape(10_000_000, 250)}
TRIES = 15
FETCHED = 20
LIMIT = 1.10
MEMORY = "6GB"

EPOCHS = """SELECT s.epoch, count(*) AS rollouts, avg(s.success::INT) AS p_hat,
    avg(s.reward) AS reward, avg(r.response_tokens) AS tokens, avg(r.tool_calls) AS calls
FROM scores AS s INNER JOIN traces AS r ON {run}r.trace_id = s.trace_id
GROUP BY s.epoch ORDER BY s.epoch"""

NEAR_ALPHA = """SELECT {columns} FROM {origin} ORDER BY distance, epoch, task_id LIMIT 20"""
NEAR_COLUMNS = "epoch, task_id, family, n, successes, p_hat, distance, r_env, prompt"
NEAR_RAW = """(SELECT s.epoch, s.task_id, t.family, g.n, g.successes, s.p_hat, s.distance,
    g.r_env, t.prompt
FROM selections AS s
INNER JOIN tasks AS t ON t.task_id = s.task_id
INNER JOIN task_scores AS g ON g.group_id = s.group_id
WHERE s.update = 'env' AND s.kept)"""

FAILURES = """SELECT epoch, failure, attempts, share, tasks, truncated, response_tokens,
    example_trace_id, example_task_id, example_error
FROM {origin} ORDER BY epoch, failure"""
FAILURES_RAW = """(SELECT s.epoch, s.failure, count(*) AS attempts,
    count(*) / any_value(c.rollouts) AS share, count(DISTINCT s.task_id) AS tasks,
    count(*) FILTER (WHERE r.finish_reason = 'length') AS truncated,
    avg(r.response_tokens) AS response_tokens, min(s.trace_id) AS example_trace_id,
    arg_min(s.task_id, s.trace_id) AS example_task_id, arg_min(r.error, s.trace_id) AS example_error
FROM scores AS s
INNER JOIN traces AS r ON r.trace_id = s.trace_id
INNER JOIN (SELECT epoch, count(*) AS rollouts FROM scores GROUP BY epoch) AS c
    ON c.epoch = s.epoch
WHERE NOT s.success
GROUP BY s.epoch, s.failure)"""

CURRICULUM = """SELECT epoch, policy_version, env_policy_version, tasks, attempts, p_hat, r_env,
    share_in_band, share_zero_signal, difficulty, difficulty_sd,
    response_tokens, response_tokens_p90
FROM {origin} ORDER BY epoch"""
CURRICULUM_RAW = f"""(WITH new_tasks AS (
    SELECT g.*, t.difficulty, t.env_policy_version, x.distance <= {K_MIN} + 1e-9 AS in_band
    FROM task_scores AS g
    INNER JOIN tasks AS t ON t.task_id = g.task_id
    LEFT JOIN selections AS x ON x.group_id = g.group_id AND x.update = 'env'
    WHERE g.source <> 'base'
), lengths AS (
    SELECT r.epoch, max(r.policy_version) AS policy_version,
        avg(r.response_tokens) AS response_tokens,
        quantile_cont(r.response_tokens, 0.9) AS response_tokens_p90
    FROM traces AS r SEMI JOIN new_tasks AS g ON g.group_id = r.group_id
    GROUP BY r.epoch
)
SELECT epoch, any_value(l.policy_version) AS policy_version,
    max(env_policy_version) AS env_policy_version, count(*) AS tasks,
    CAST(sum(n) AS BIGINT) AS attempts, sum(successes) / sum(n) AS p_hat, avg(r_env) AS r_env,
    avg(CAST(in_band AS DOUBLE)) AS share_in_band,
    avg(CAST(zero_signal AS DOUBLE)) AS share_zero_signal,
    avg(difficulty) AS difficulty, stddev_samp(difficulty) AS difficulty_sd,
    any_value(l.response_tokens) AS response_tokens,
    any_value(l.response_tokens_p90) AS response_tokens_p90
FROM new_tasks INNER JOIN lengths AS l USING (epoch) GROUP BY epoch)"""

ADDED = "EXCLUDE (run_id, arm)"
ONE_TRACE = "SELECT * {without} FROM traces WHERE trace_id = '{id}'"

FETCH = "SELECT * {without} FROM trace_tokens WHERE trace_id IN ({ids}) ORDER BY trace_id"


def questions(shape: Shape) -> dict[str, tuple[str, str]]:
    """Return, by name, each query for genenv and the same one written by hand."""
    middle = trace_ids(shape, 1)[0]
    some = ", ".join(f"'{name}'" for name in trace_ids(shape, FETCHED))
    return {
        "success and lengths by epoch": (
            EPOCHS.format(run="r.run_id = s.run_id AND "),
            EPOCHS.format(run=""),
        ),
        "near_alpha": (
            NEAR_ALPHA.format(columns=NEAR_COLUMNS, origin="near_alpha"),
            NEAR_ALPHA.format(columns=NEAR_COLUMNS, origin=NEAR_RAW),
        ),
        "failures": (
            FAILURES.format(origin="failures"),
            FAILURES.format(origin=FAILURES_RAW),
        ),
        "curriculum": (
            CURRICULUM.format(origin="curriculum"),
            CURRICULUM.format(origin=CURRICULUM_RAW),
        ),
        "one trace by id": (
            ONE_TRACE.format(without=ADDED, id=middle),
            ONE_TRACE.format(without="", id=middle),
        ),
        f"{FETCHED} full traces by id": (
            FETCH.format(without=ADDED, ids=some),
            FETCH.format(without="", ids=some),
        ),
    }


def trace_ids(shape: Shape, count: int) -> list[str]:
    """Return ids of traces, spread over the pool."""
    found: list[str] = []
    for index in range(count):
        epoch = 1 + (2 * index + 1) * shape.epochs // (2 * count)
        task = (index * 7919 + 21) % shape.tasks
        found.append(f"g{epoch:06d}-4edb7053-{task:07d}.{index % 8:04d}")
    return found


def raw(root: Path) -> duckdb.DuckDBPyConnection:
    """Return a plain DuckDB with the run's files under the names of their tables."""
    con = duckdb.connect(":memory:")
    for name, files in source(LocalStore(root, writable=False), RUN).files.items():
        con.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({files!r})")
    return con


def views(root: Path, shape: Shape) -> list[str]:
    """Print both times of every query; returns those above the limit.

    The table also has the CPU seconds of all DuckDB threads, because load changes wall time.
    """
    ways = (connect(root, memory=MEMORY), raw(root))
    rows: list[list[str]] = []
    above: list[str] = []
    for name, asked in questions(shape).items():
        both = [con.execute(sql).pl() for con, sql in zip(ways, asked, strict=True)]
        assert_frame_equal(both[0], both[1], check_exact=False)
        assert both[0].height > 0, name
        times: list[list[tuple[float, float]]] = [[], []]
        for number in range(TRIES):
            for way in (0, 1) if number % 2 else (1, 0):
                times[way].append(_timed(ways[way], asked[way]))
        wall, cpu = (
            statistics.median(a[i] / b[i] for a, b in zip(*times, strict=True)) for i in (0, 1)
        )
        medians = [f"{statistics.median(t[0] for t in way) * 1e3:.1f} ms" for way in times]
        rows.append([name, *medians, f"{wall:.3f}", f"{cpu:.3f}"])
        if wall > LIMIT:
            above.append(f"{name} of {shape.traces:,}: {wall:.2f}")
    for con in ways:
        con.close()
    title = f"{shape.traces:,} traces, medians of {TRIES} alternating repetitions, limit {LIMIT}"
    table(title, ("", "genenv", "raw DuckDB", "ratio", "of CPU time"), rows)
    return above


def _timed(con: duckdb.DuckDBPyConnection, sql: str) -> tuple[float, float]:
    """Return the wall and CPU seconds of one query."""
    wall, cpu = time.perf_counter(), time.process_time()
    con.execute(sql).pl()
    return time.perf_counter() - wall, time.process_time() - cpu


def calls(root: Path, shape: Shape) -> None:
    """Print the time of whole calls: opening a root, and a sandboxed query with its process."""
    opening = statistics.median(
        seconds(lambda: connect(root, memory=MEMORY).close()) for _ in range(5)
    )
    name, (sql, _) = next(iter(questions(shape).items()))
    asking = statistics.median(seconds(lambda: frame(root, sql, memory=MEMORY)) for _ in range(3))
    print(
        f"  opening all tables and views {opening * 1e3:.0f} ms; "
        f"'{name}' in the sandbox, its process included, {asking * 1e3:.0f} ms"
    )


def memory(root: Path, shape: Shape) -> None:
    """Print the peak memory of new processes that each run one query once."""
    rows: list[list[str]] = []
    for name in questions(shape):
        peaks = [_peak(root, shape, way, name) for way in ("genenv", "raw")]
        rows.append([name, *(f"{peak:.0f} MB" for peak in peaks)])
    table(f"{shape.traces:,} traces, peak resident memory", ("", "genenv", "raw DuckDB"), rows)


def _peak(root: Path, shape: Shape, way: str, name: str) -> float:
    command = [sys.executable, "-m", "tests.bench.scale", str(root), str(shape.traces), way, name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _ask_alone(root: Path, traces: int, way: str, name: str) -> None:
    """Run one query in this process and print the process's peak memory in MB."""
    sql = questions(SHAPES[traces])[name][way == "raw"]
    with connect(root, memory=MEMORY) if way == "genenv" else raw(root) as con:
        con.execute(sql).pl()
    # ru_maxrss would begin with the parent's size.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    print(int(status.split("VmHWM:")[1].split()[0]) / 1e3)


def checking(shape: Shape) -> None:
    """Print pandera's share of writing one epoch of this shape, table by table."""
    rows: list[list[str]] = []
    sums = [0.0, 0.0]
    for tables in epoch_tables(1, shape.tasks).values():
        for name, given in tables.items():
            valid = validate(name, given)
            own = [
                _median(lambda n=name, g=given: validate(n, g)),
                _median(lambda n=name, g=valid: to_parquet(n, g)),
            ]
            sums = [total + part for total, part in zip(sums, own, strict=True)]
            rows.append([name, f"{given.height}", *_shares(own)])
    rows.append(["all", "", *_shares(sums)])
    head = ("", "rows", "pandera", "to Parquet", "pandera's share")
    table("validating and encoding one epoch", head, rows)


def _shares(times: Sequence[float]) -> list[str]:
    return [*(f"{part * 1e3:.1f} ms" for part in times), f"{times[0] / sum(times):.0%}"]


def _median(work: Callable[[], object]) -> float:
    return statistics.median(seconds(work) for _ in range(5))


def scale(shape: Shape) -> list[str]:
    """Build a pool in a temporary folder and print all its numbers; returns what is too slow."""
    root = Path(tempfile.mkdtemp(prefix="genenv-bench-"))
    try:
        took = seconds(lambda: build(LocalStore(root), shape))
        written = sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
        files = source(LocalStore(root), RUN).files
        print(
            f"\na pool of {shape.traces:,} traces in {shape.epochs} epochs: built in {took:.0f} s, "
            f"{written / 1e9:.2f} GB, {sum(map(len, files.values()))} live files"
        )
        above = views(root, shape)
        calls(root, shape)
        memory(root, shape)
        checking(shape)
        return above
    finally:
        shutil.rmtree(root, ignore_errors=True)


def main(traces: Sequence[int] = tuple(SHAPES)) -> None:
    """Print all numbers of pools of these sizes, and what is above the limit."""
    unknown = [size for size in traces if size not in SHAPES]
    if unknown:
        raise SystemExit(f"scale: {unknown[0]:,} traces; known: {', '.join(map(str, SHAPES))}")
    above = [name for size in traces for name in scale(SHAPES[size])]
    print(f"\nabove {LIMIT}: {', '.join(above) or 'none'}")


if __name__ == "__main__":
    _ask_alone(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5])
