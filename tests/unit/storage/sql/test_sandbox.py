"""The sandbox of users' SQL.

Invariants: every attack is refused clearly and without effect: no file changes or appears, no
secret is in the answer, neither as root nor as another user who owns the files; the same holds
without the check of the parse tree and, where the kernel has Landlock, also without DuckDB's
settings; time, memory and the size of results are bounded; plain analytical SQL works; readers of a
root see whole stages and no errors while it is written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from genenv_core import pools
from genenv_core.errors import QueryError
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql import confine, sandbox
from genenv_core.storage.sql.admission import admit
from genenv_core.storage.sql.catalog import setup
from genenv_core.storage.sql.duck import start
from genenv_core.storage.sql.sandbox import Limits, QueryLimit, request, size
from genenv_core.storage.sql.sources import open_tables, source
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.protocol import Store
from schemas.registry import TABLES
from tests.mutations import mutation
from tests.unit.builders_root import START, commit_epoch, fill, small_root
from tests.unit.builders_tables import sample_frame
from tests.unit.storage.s3.s3_double import BUCKET, environment, moto
from tests.unit.storage.sql.sandbox_fork import NOBODY
from tests.waiting import BOUND_S, until

ADMISSION = "genenv_core/storage/sql/admission.py"
CONFINE = "genenv_core/storage/sql/confine.py"
SANDBOX = "genenv_core/storage/sql/sandbox.py"

REPOSITORY = Path(__file__).parents[4]
SECRET = "s3cret-7f3a9c"
ROOT = os.geteuid() == 0

# {part}: a file that a manifest names; {loose}: a file of the pool that none names; {area}: all.
COPY = "COPY (SELECT 7 AS a) TO '{part}' (FORMAT parquet, USE_TMP_FILE false)"
ATTACKS = {
    # Writing, over a file that may be read and elsewhere.
    "copy-over-part": COPY,
    "copy-csv-over-part": "COPY (SELECT 7) TO '{part}' (FORMAT csv, USE_TMP_FILE false)",
    "copy-json-over-part": "COPY (SELECT 7) TO '{part}' (FORMAT json, USE_TMP_FILE false)",
    "copy-default-over-part": "COPY (SELECT 7 AS a) TO '{part}' (FORMAT parquet)",
    "copy-per-thread": "COPY (SELECT 7) TO '{part}' (PER_THREAD_OUTPUT true, OVERWRITE true)",
    "copy-partitioned": "COPY (SELECT 7 a, 8 b) TO '{area}/cwd' (PARTITION_BY a, OVERWRITE true)",
    "copy-elsewhere": "COPY traces TO '{area}/out.csv'",
    "copy-relative": "COPY traces TO 'out.csv'",
    "copy-beside": "COPY traces TO '{part}.tmp' (FORMAT csv)",
    "copy-to-stdout": "COPY traces TO '/dev/stdout'",
    "copy-cte": f"WITH x AS ({COPY}) SELECT * FROM x",
    "copy-subquery": f"SELECT * FROM ({COPY})",
    "copy-explain": f"EXPLAIN {COPY}",
    "copy-analyze": f"EXPLAIN ANALYZE {COPY}",
    "copy-analyze-options": f"EXPLAIN (ANALYZE, FORMAT json) {COPY}",
    "copy-analyze-comment": f"/* x */ EXPLAIN /* y */ ANALYZE -- z\n{COPY}",
    "copy-analyze-twice": f"EXPLAIN ANALYZE EXPLAIN ANALYZE {COPY}",
    "copy-prepare": f"PREPARE p AS {COPY}",
    "copy-execute": f"PREPARE p AS {COPY}; EXECUTE p",
    "copy-second": f"SELECT 1; {COPY}",
    "copy-hidden-second": f"SELECT 1 /* ; */ ; /* */ {COPY} --",
    "copy-query-function": "FROM query('" + COPY.replace("'", "''") + "')",
    "copy-unicode-space": f"SELECT\u00a01\u2003;\u3000{COPY}",
    "copy-nul": f"SELECT 1\0; {COPY}",
    "copy-database": "COPY FROM DATABASE memory TO other",
    "export": "EXPORT DATABASE '{area}/export'",
    "import": "IMPORT DATABASE '{area}/cwd'",
    "create-table": "CREATE TABLE x AS SELECT 1",
    "create-view": "CREATE OR REPLACE VIEW traces AS SELECT 1",
    "create-macro": "CREATE MACRO f(a) AS a + 1",
    "create-table-macro": "CREATE MACRO f() AS TABLE FROM '{secret}'",
    "create-type": "CREATE TYPE mood AS ENUM ('a')",
    "create-schema": "CREATE SCHEMA x",
    "create-sequence": "CREATE SEQUENCE x",
    "insert": "INSERT INTO held.runs_0 SELECT * FROM held.runs_0",
    "insert-cte": "WITH x AS (INSERT INTO held.runs_0 FROM held.runs_0 RETURNING *) FROM x",
    "update": "UPDATE held.runs_0 SET seed = 1",
    "delete": "DELETE FROM held.runs_0",
    "delete-analyze": "EXPLAIN ANALYZE DELETE FROM held.runs_0",
    "truncate": "TRUNCATE held.runs_0",
    "merge": "MERGE INTO held.runs_0 AS a USING runs AS b ON true WHEN MATCHED THEN DELETE",
    "drop": "DROP VIEW traces",
    "alter": "ALTER VIEW traces RENAME TO t",
    "comment": "COMMENT ON VIEW traces IS 'x'",
    "vacuum": "VACUUM",
    "checkpoint": "CHECKPOINT",
    "checkpoint-function": "FROM checkpoint()",
    "transaction": "BEGIN",
    # Reading other files.
    "read-text": "SELECT content FROM read_text('{secret}')",
    "read-blob": "SELECT content FROM read_blob('{secret}')",
    "read-csv": "FROM read_csv('{secret}')",
    "read-csv-auto": "FROM read_csv_auto('/etc/passwd', delim = ':')",
    "read-json": "FROM read_json('{secret}')",
    "read-ndjson": "FROM read_ndjson_objects('{secret}')",
    "sniff-csv": "FROM sniff_csv('/etc/passwd')",
    "glob": "FROM glob('{area}/*')",
    "glob-parts": "FROM glob('{area}/root/**')",
    "file-quoted": "FROM '{secret}'",
    "file-identifier": 'FROM "{secret}"',
    "file-passwd": "FROM '/etc/passwd'",
    "file-proc": "SELECT content FROM read_text('/proc/self/environ')",
    "file-cmdline": "FROM read_csv('/proc/self/cmdline')",
    "file-describe": "DESCRIBE '{area}/cwd/secret.csv'",
    "file-summarize": "SUMMARIZE '{area}/cwd/secret.csv'",
    "file-relative": "FROM 'secret.csv'",
    "file-in-subquery": "SELECT (SELECT count(*) FROM '{area}/cwd/secret.csv') FROM runs",
    "file-in-pivot": "FROM (PIVOT runs ON run_id IN (FROM 'secret.csv') USING count(*))",
    "file-in-cte": "WITH x AS (FROM '{area}/cwd/secret.csv') FROM x",
    "file-in-limit": "SELECT 1 LIMIT (SELECT count(*) FROM 'secret.csv')",
    "file-in-lambda": "SELECT list_transform([1], x -> (SELECT max(a) FROM 'secret.csv'))",
    "file-in-join": "FROM runs, LATERAL (FROM read_text('{secret}'))",
    "dot-dot": "FROM read_text('{part}/../../../../secret.txt')",
    "dot-dot-parts": "FROM read_parquet('{root}/parts/../../secret.parquet')",
    "symlink": "FROM read_text('{area}/link.txt')",
    "symlink-folder": "FROM read_text('{area}/linked/secret.txt')",
    "unnamed-part": "FROM read_parquet('{loose}')",
    "unnamed-parts": "FROM read_parquet('{root}/parts/*/*.parquet')",
    "named-part": "FROM read_parquet('{part}')",
    "part-as-text": "FROM read_text('{part}')",
    "manifest": "FROM read_json('{root}/runs/run-a/config.json')",
    "parquet-scan": "FROM parquet_scan(['{part}', '{loose}'])",
    "parquet-metadata": "FROM parquet_metadata('{loose}')",
    "parquet-schema": "FROM parquet_schema('{part}')",
    "parquet-kv": "FROM parquet_kv_metadata('{loose}')",
    "histogram": "FROM histogram_values('{area}/cwd/secret.csv', a)",
    "read-duckdb": "FROM read_duckdb('{area}/x.duckdb')",
    "sqlite-scan": "FROM sqlite_scan('{area}/x.sqlite', 't')",
    "python-variable": "FROM frame",
    "pandas-scan": "FROM pandas_scan(1)",
    "arrow-scan": "FROM arrow_scan(1, 2, 3)",
    "file-url": "FROM read_text('file://{secret}')",
    "copy-from": "COPY held.runs_0 FROM '{secret}'",
    # The network.
    "http": "FROM read_csv('http://127.0.0.1:9/x.csv')",
    "https": "FROM 'https://example.org/x.parquet'",
    "s3": "FROM read_parquet('s3://bucket/x.parquet')",
    "hf": "FROM 'hf://datasets/a/b.parquet'",
    # Databases, extensions, settings, secrets.
    "attach": "ATTACH '{area}/x.duckdb' AS x",
    "attach-part": "ATTACH '{part}' AS x (READ_ONLY)",
    "attach-memory": "ATTACH ':memory:' AS x",
    "detach": "DETACH memory",
    "use": "USE held",
    "install": "INSTALL httpfs",
    "install-from": "FORCE INSTALL httpfs FROM '{area}'",
    "load": "LOAD '{area}/x.duckdb_extension'",
    "set": "SET memory_limit = '99GB'",
    "set-access": "SET enable_external_access = true",
    "set-lock": "SET lock_configuration = false",
    "set-paths": "SET allowed_directories = ['/']",
    "set-home": "SET home_directory = '{area}'",
    "set-temp": "SET temp_directory = '{area}/temp'",
    "set-variable": "SET VARIABLE x = 1",
    "get-variable": "SELECT getvariable('x')",
    "reset": "RESET memory_limit",
    "pragma": "PRAGMA database_list",
    "pragma-log": "PRAGMA enable_logging",
    "pragma-profile": "PRAGMA profiling_output = '{area}/profile.json'",
    "call": "CALL pragma_version()",
    "logging-function": "FROM enable_logging('QueryLog', storage := 'file', "
    "storage_config := {{'path': '{area}/log'}})",
    "profiling-function": "FROM enable_profiling(save_location := '{area}/profile.json')",
    "write-log": "SELECT write_log('x')",
    "settings": "FROM duckdb_settings()",
    "settings-value": "SELECT current_setting('allowed_paths')",
    "settings-pg": "FROM pg_catalog.pg_settings",
    "secrets": "FROM duckdb_secrets()",
    "create-secret": "CREATE PERSISTENT SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "which-secret": "FROM which_secret('s3://x', 's3')",
    "views-sql": "SELECT sql FROM duckdb_views()",
    "views-sql-view": "SELECT sql FROM duckdb_views",
    "sqlite-master": "SELECT sql FROM sqlite_master",
    "information-schema-views": "FROM information_schema.views",
    "databases": "FROM duckdb_databases()",
    "held": "FROM held.runs_0",
    "environment": "SELECT getenv('GENENV_SANDBOX_SECRET')",
    # Text that is run later.
    "query": "FROM query('SELECT 1')",
    "query-file": "FROM query('FROM ''{secret}''')",
    "query-table": "FROM query_table('{area}/cwd/secret.csv')",
    "query-table-list": "FROM query_table(['traces', '{secret}'])",
    "serialized": "FROM json_execute_serialized_sql("
    "json_serialize_sql('SELECT content FROM read_text(''{secret}'')'))",
    "serialized-pragma": "PRAGMA json_execute_serialized_sql('{{}}')",
    "serialize-plan": "SELECT json_serialize_plan('FROM ''{area}/cwd/secret.csv''')",
    "execute": "EXECUTE p",
    "pivot-two": "PIVOT runs ON run_id USING count(*)",
    "empty": "",
    "comment-only": "-- nothing",
    "semicolons": ";;;",
    "nested": "SELECT " + "(" * 20000 + "1" + ")" * 20000,
    "deep": "SELECT " + "-" * 0 + "+".join(["1"] * 30000),
}
# Attacks on memory, each of which DuckDB alone would let grow or run.
MEMORY = {
    "repeat": "SELECT length(repeat('x', 4000000000))",
    "repeat-huge": "SELECT repeat('x', 10000000000)",
    "repeat-rows": "SELECT repeat('x', 100000000) FROM range(1000)",
    "lpad": "SELECT lpad('x', 500000000, repeat('\U0001d11e', 25000000))",
    "list-resize": "SELECT len(list_resize([1], 3000000000))",
    "range-list": "SELECT len(range(2000000000))",
    "string-agg": "SELECT length(string_agg(repeat('x', 1000000), '')) FROM range(100000)",
    "distinct": "SELECT count(*) FROM (SELECT DISTINCT hash(i) FROM range(30000000) AS r(i))",
    "sort": "SELECT i FROM range(40000000) AS r(i) ORDER BY hash(i) LIMIT 5 OFFSET 30000000",
    "result": "SELECT repeat('x', 1000000) FROM range(100000)",
}
TIME = {
    "range": "SELECT count(*) FROM range(1000000000000) WHERE hash(range) = 1",
    "cross-join": "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b",
    "recursion": "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) "
    "SELECT max(n) FROM r",
    "sleep": "SELECT pg_sleep(1000)",
}
WELL = [
    "SELECT 1",
    "FROM traces LIMIT 3",
    "TABLE runs",
    "VALUES (1, 'a'), (2, 'b')",
    "SELECT epoch, count(*) FROM traces GROUP BY epoch ORDER BY epoch DESC NULLS LAST",
    "SELECT task_id, row_number() OVER (PARTITION BY epoch ORDER BY p_hat DESC) FROM task_scores",
    "SELECT epoch, avg(p_hat) OVER (ORDER BY epoch ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) "
    "FROM epochs",
    "FROM task_scores QUALIFY rank() OVER (PARTITION BY epoch ORDER BY p_hat) = 1",
    "WITH a AS (SELECT * FROM scores), b AS MATERIALIZED (FROM a WHERE success) FROM b",
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5) FROM n",
    "PIVOT scores ON success IN (true, false) USING count(*) GROUP BY epoch",
    "UNPIVOT (SELECT run_id, p_hat, share_kept FROM epochs) ON p_hat, share_kept",
    "SUMMARIZE scores",
    "SUMMARIZE SELECT p_hat FROM epochs",
    "DESCRIBE traces",
    "DESCRIBE SELECT 1 AS a",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "EXPLAIN SELECT * FROM traces",
    "EXPLAIN ANALYZE SELECT count(*) FROM traces",
    "EXPLAIN (FORMAT json) SELECT 1",
    "SELECT update, kept FROM selections",
    "SELECT column_name FROM information_schema.columns WHERE table_name = 'epochs'",
    "SELECT list_sum(list_transform(logprobs, x -> -x)) FROM trace_tokens",
    "SELECT [x * 2 FOR x IN loss_mask IF x > 0], token_ids[1:2] FROM trace_tokens",
    "SELECT unnest(token_ids) FROM trace_tokens LIMIT 5",
    "SELECT t.trace_id, u.i FROM trace_tokens t, unnest(t.token_ids) AS u(i) LIMIT 5",
    "SELECT regexp_extract(generation_text, '(\\w+) (\\d+)', 1) FROM tasks",
    "SELECT messages->0->>'content' AS text FROM trace_tokens LIMIT 3",
    "SELECT j.key, j.value FROM runs, json_each(config) AS j",
    "SELECT json_extract_string(config, '$.epochs'), config->>'epochs' FROM runs",
    "FROM traces USING SAMPLE 3 ROWS",
    "FROM traces TABLESAMPLE 50%",
    "SELECT DISTINCT ON (epoch) epoch, trace_id FROM traces ORDER BY ALL",
    "SELECT quantile_cont(p_hat, [0.1, 0.9]), corr(p_hat, r_env), mode(source) FROM task_scores",
    "SELECT count(*) FILTER (WHERE success) / count(*) AS rate FROM scores",
    "FROM scores JOIN task_scores USING (run_id, arm, epoch, task_id, group_id) LIMIT 2",
    "FROM epochs a ASOF JOIN stage_runs b ON a.run_id = b.run_id AND a.epoch >= b.epoch LIMIT 1",
    "SELECT * EXCLUDE (run_id) REPLACE (epoch + 1 AS epoch), COLUMNS('p_.*') FROM epochs",
    "(SELECT task_id FROM tasks) INTERSECT (SELECT task_id FROM scores)",
    "SELECT source, epoch, count(*) FROM tasks GROUP BY CUBE (source, epoch)",
    "SELECT started_at::DATE, strftime(started_at, '%H:%M'), now() > started_at FROM stage_runs",
    "SELECT CASE WHEN p_hat > 0.5 THEN 'easy' ELSE 'hard' END, p_hat::DECIMAL(4, 2) FROM epochs",
    "SELECT {'a': 1}, MAP {'k': 2}, struct_pack(b := 1), NULL::INTEGER[], 1::HUGEINT",
    "SELECT x FROM generate_series(1, 3) AS g(x), (VALUES ('a')) AS v(y)",
    "SELECT bar(p_hat, 0, 1, 20), format('{:.1f}', p_hat) FROM epochs",
    "SELECT * FROM memory.main.epochs WHERE EXISTS (SELECT 1 FROM main.runs)",
    "-- a comment\nSELECT ';' AS semicolon, 'COPY x TO y' AS words;",
    "FROM lineage SELECT checkpoint, list(row_id ORDER BY row_id)[1] GROUP BY ALL",
]


class Area:
    """A root with targets: a secret beside it, links to that, a part that no manifest names."""

    def __init__(self, folder: Path, owner: int, url: str) -> None:
        """Make the root and give it to a user; with `url` it is in the bucket served there."""
        self.path = folder
        self.root: Path | str = folder / "root"
        folder.chmod(0o755)
        store: Store
        if url:
            os.environ["GENENV_CACHE_DIR"] = str(folder / "root")
            os.environ["GENENV_STATE_DIR"] = str(folder / "state")
            self.root = f"s3://{BUCKET}/{folder.name}"
            store = open_store(self.root)
            fill(store)
        else:
            store = small_root(folder / "root")
        self.part = Path(source(store, "run-a").files["scores"][0])
        self.loose = folder / "root" / "parts" / "zz" / "loose.parquet"
        self.loose.parent.mkdir()
        pl.DataFrame({"secret": [SECRET]}).write_parquet(self.loose)
        shutil.copy(self.loose, folder / "secret.parquet")
        self.secret = folder / "secret.txt"
        self.secret.write_text(f"{SECRET}\n")
        (folder / "cwd").mkdir()
        (folder / "cwd" / "secret.csv").write_text(f"a\n{SECRET}\n")
        (folder / "link.txt").symlink_to(self.secret)
        (folder / "linked").symlink_to(folder)
        with duckdb.connect(str(folder / "x.duckdb")) as con:
            con.execute(f"CREATE TABLE t AS SELECT '{SECRET}' AS s")
        self.body = json.loads(request([source(store, "run-a")], "", Limits(memory="200MB")))
        # Attacks name a few tables; building every view for each of them is slow.
        few = [f'CREATE VIEW "{name}"' for name in ("runs", "traces", "scores")]
        kept = [s for s in self.body["statements"] if s.startswith(tuple(few))]
        self.body_less = self.body | {"statements": kept, "views": {}}
        if ROOT and owner:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, owner, owner, follow_symlinks=False)

    def fill(self, sql: str) -> str:
        """Return an attack with the names of this area filled in."""
        names = {"part": self.part, "loose": self.loose, "area": self.path}
        return sql.format(**names, root=self.root, secret=self.secret)


@pytest.fixture(
    name="areas", scope="module", params=["local", pytest.param("s3", marks=pytest.mark.slow)]
)
def two_areas(request: pytest.FixtureRequest) -> Iterator[dict[int, Area]]:
    """Return an area for this user, and one for `nobody` if the tests run as root."""
    if request.param == "local":
        yield from _areas("")
        return
    with moto() as url, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(url).items():
            patch.setenv(name, value)
        for name in ("GENENV_CACHE_DIR", "GENENV_STATE_DIR"):
            patch.setenv(name, "")
        yield from _areas(url)


def _areas(url: str) -> Iterator[dict[int, Area]]:
    users = [os.geteuid(), NOBODY] if ROOT else [os.geteuid()]
    folders = {uid: Path(tempfile.mkdtemp(prefix="genenv-sandbox-")) for uid in users}
    try:
        yield {uid: Area(folder, uid, url) for uid, folder in folders.items()}
    finally:
        for folder in folders.values():
            shutil.rmtree(folder)


def fork(
    area: Area,
    uid: int,
    queries: list[str],
    *,
    body: dict[str, Any] | None = None,
    without: tuple[str, ...] = (),
    seconds: float = BOUND_S,
    together: bool = False,
) -> list[dict[str, Any]]:
    """Return the answers to queries, each from a confined process of its own, or from one."""
    asked = {
        "area": str(area.path),
        "uid": uid,
        "layers": without,
        "body": body or area.body_less,
        "queries": queries,
        "timeout_s": seconds,
        "together": together,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.storage.sql.sandbox_fork"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "GENENV_SANDBOX_SECRET": SECRET, "PYTHONPATH": str(REPOSITORY)},
        timeout=BOUND_S,
        check=True,
    )
    return json.loads(done.stdout)


class Answers:
    """Answers every attack once for each user and set of layers.

    With all layers one process answers all attacks, without some each has its own.
    """

    def __init__(self, areas: dict[int, Area]) -> None:
        """Run the attacks in these areas."""
        self.areas = areas

    @cache  # noqa: B019
    def of(self, other: bool, without: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
        """Return attack -> answer, for this user or for `nobody`."""
        uid = NOBODY if other else os.geteuid()
        area = self.areas[uid]
        filled = [area.fill(sql) for sql in ATTACKS.values()]
        # With the look at the tree no attack is begun, so none can be in the way of the next.
        answers = fork(area, uid, filled, without=without, together=not without)
        return dict(zip(ATTACKS, answers, strict=True))


@pytest.fixture(name="answers", scope="module")
def all_answers(areas: dict[int, Area]) -> Answers:
    """Return the answers that the tests of this module share."""
    return Answers(areas)


def harmless(answer: dict[str, Any]) -> None:
    """Assert that nothing changed and nothing secret came back."""
    assert answer["changed"] == []
    output = answer["out"] + answer["err"]
    assert SECRET not in output
    assert "root:x:0" not in output
    assert "GENENV_SANDBOX_SECRET=" not in output


def users() -> list[Any]:
    """Return the parameter `other`: run as this user, and as nobody."""
    alone = pytest.mark.skipif(not ROOT, reason="only root can become another user")
    return [pytest.param(False, id="self"), pytest.param(True, id="nobody", marks=alone)]


def test_there_are_enough_attacks() -> None:
    assert len(ATTACKS) + len(MEMORY) + len(TIME) >= 60
    assert len(WELL) >= 25


@pytest.mark.parametrize("other", users())
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_one_refusal_and_nothing_happens(
    attack: str, other: bool, answers: Answers
) -> None:
    answer = answers.of(other)[attack]
    harmless(answer)
    assert answer["status"] == 3, answer
    assert answer["out"] == ""
    message = json.loads(answer["err"])["error"]
    assert message
    assert "\n" not in message.partition("\nline ")[0]  # the quoted line and its caret may follow
    assert len(message) <= 1000


def test_a_process_of_its_own_refuses_as_one_for_all_does(
    areas: dict[int, Area], answers: Answers
) -> None:
    uid = os.geteuid()
    some = ("copy-over-part", "read-text", "copy-nul", "deep")
    apart = fork(areas[uid], uid, [areas[uid].fill(ATTACKS[attack]) for attack in some])
    for attack, answer in zip(some, apart, strict=True):
        assert answers.of(False)[attack].items() <= answer.items(), attack


@pytest.mark.slow
def test_without_the_look_at_the_tree_attacks_are_harmless(answers: Answers) -> None:
    # Root's capabilities are dropped, so this holds without Landlock too.
    for answer in answers.of(False, ("tree",)).values():
        harmless(answer)


def test_layers_that_are_left_out_are_off(areas: dict[int, Area]) -> None:
    uid = os.geteuid()
    how = "SELECT CASE WHEN current_setting('lock_configuration') THEN 'shut' ELSE 'open' END"
    for layers, told in ((("tree",), "shut"), (("tree", "settings"), "open")):
        (answer,) = fork(areas[uid], uid, [how], without=layers)
        assert answer["status"] == 0 and told in answer["out"], answer
    (answer,) = fork(areas[uid], uid, ["COPY (SELECT 1) TO 'x'"], without=("tree",))
    assert "permission" in json.loads(answer["err"])["error"].lower(), answer  # admitted, and shut


@pytest.mark.skipif(not confine.landlock_version(), reason="this kernel has no Landlock")
@pytest.mark.slow
@pytest.mark.parametrize("other", users())
def test_the_kernel_alone_holds(other: bool, answers: Answers) -> None:
    for answer in answers.of(other, ("tree", "settings")).values():
        harmless(answer)


@mutation(
    "admission lets any table function in", ADMISSION,
    "if called not in TABLE_FUNCTIONS and called not in (macros := _macros(con)):", "if False:",
)  # fmt: skip
def test_the_look_at_the_tree_alone_refuses_every_attack(areas: dict[int, Area]) -> None:
    area = areas[os.geteuid()]
    built = setup([source(open_store(str(area.root), writable=False), "run-a")])
    with start("200MB") as con:
        for statement in built.statements[: len(TABLES)]:
            if "held." not in statement:
                con.execute(statement)
        for sql in ATTACKS.values():
            with pytest.raises(QueryError):
                admit(con, area.fill(sql))


@pytest.mark.skipif(not ROOT, reason="root's powers are what is dropped")
def test_root_without_its_capabilities_cannot_write_what_is_read_only(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_text("x")
    path.chmod(0o444)
    code = (
        "import ctypes, sys\nfrom genenv_core.storage.sql import confine\n"
        "confine._drop_capabilities(ctypes.CDLL(None))\n"
        "assert open(sys.argv[1]).read() == 'x'\nopen(sys.argv[1], 'w')\n"
    )
    done = python(code, str(path))
    assert "PermissionError" in done.stderr
    assert path.read_text() == "x"


@pytest.mark.skipif(confine.landlock_version() < 4, reason="Landlock knows no network here")
def test_the_kernel_refuses_files_folders_and_sockets(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    (tmp_path / "other").write_text("y")
    code = """
import os, socket, sys, threading
from genenv_core.storage.sql.confine import confine
mine, other = sys.argv[1:]
assert confine([mine], memory_bytes=10**9, cpu_s=9)
assert open(mine).read() == "x"
def refused(call, *arguments):
    try:
        call(*arguments)
    except PermissionError:
        return
    raise SystemExit(f"{call} {arguments}")
def everything():
    refused(open, other)
    refused(open, mine, "r+")
    refused(os.truncate, mine, 0)
    refused(os.listdir, os.path.dirname(mine))
    refused(os.unlink, mine)
    refused(os.rename, mine, mine + "2")
    refused(os.link, mine, mine + "2")
    refused(os.symlink, mine, mine + "2")
    refused(os.mkdir, mine + "2")
    refused(open, mine + "2", "w")
    refused(open, "/proc/self/environ")
    refused(os.execv, sys.executable, [sys.executable])
    with socket.socket() as one:
        refused(one.connect, ("127.0.0.1", 9))
    with socket.socket() as one:
        refused(one.bind, ("127.0.0.1", 0))
everything()
thread = threading.Thread(target=everything)
thread.start()
thread.join()
print("held")
"""
    done = python(code, str(tmp_path / "mine"), str(tmp_path / "other"))
    assert done.stdout == "held\n", done.stderr


@mutation(
    "the sandbox's memory has no bound", CONFINE,
    "(resource.RLIMIT_AS, used + memory_bytes)", "(resource.RLIMIT_AS, resource.RLIM_INFINITY)",
)  # fmt: skip
@mutation(
    "a query may compute for ever", CONFINE,
    "resource.RLIM_INFINITY if cpu_s is None else cpu_s)", "resource.RLIM_INFINITY)",
)  # fmt: skip
@mutation(
    "a query's process writes files", CONFINE,
    "(resource.RLIMIT_FSIZE, 0)", "(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)",
)  # fmt: skip
def test_the_process_has_limits() -> None:
    code = """
import resource
from genenv_core.storage.sql.confine import confine
confine([], memory_bytes=10**9, cpu_s=7)
names = ("AS", "CPU", "FSIZE", "CORE")
print(*(resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in names))
"""
    done = python(code)
    memory, rest = done.stdout.split(")", 1)
    assert 10**9 < int(memory.partition(", ")[2]) < 2 * 10**9, done.stderr
    assert rest == " (7, 7) (0, 0) (0, 0)\n"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter; returns it once it has ended."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=BOUND_S,
        check=False,
    )


@pytest.mark.slow
def test_memory_is_bounded(areas: dict[int, Area]) -> None:
    uid, queries = os.geteuid(), list(MEMORY.values())
    body = areas[uid].body_less | {"memory_bytes": size("64MB")}
    for sql, answer in zip(queries, fork(areas[uid], uid, queries, body=body), strict=True):
        harmless(answer | {"out": ""})
        assert not answer["late"], sql
        assert answer["status"] != 0, sql
        said = json.loads(answer["err"])
        assert said.keys() & {"memory", "large"} or "maximum" in said["error"], sql


@pytest.mark.timeout(BOUND_S)  # the queries themselves take longer
def test_time_is_bounded(areas: dict[int, Area]) -> None:
    uid = os.geteuid()
    answers = fork(areas[uid], uid, list(TIME.values()), seconds=0.5)
    for answer in answers:
        harmless(answer)
        assert answer["late"]
        assert answer["status"] == -9
    with pytest.raises(QueryLimit, match=r"more than 1 s: narrow it, or raise --timeout"):
        pools.frame(areas[uid].root, TIME["cross-join"], timeout_s=1)


def test_what_the_caller_hears_about_memory(areas: dict[int, Area]) -> None:
    root = areas[os.geteuid()].root
    with pytest.raises(QueryLimit, match="more than 100MB of memory: narrow it, or raise"):
        pools.frame(root, MEMORY["repeat"], memory="100MB")
    for wrong in ("lots", "1", "-1GB"):
        with pytest.raises(QueryError, match="for example 512MB"):
            pools.frame(root, "SELECT 1", memory=wrong)
    assert [size("64MB"), size("1.5 GB"), size("1GiB")] == [64 * 10**6, 1500 * 10**6, 2**30]


@pytest.mark.parametrize("other", users())
def test_plain_analytical_sql_works(other: bool, areas: dict[int, Area]) -> None:
    uid = NOBODY if other else os.geteuid()
    body = areas[uid].body | {"timeout_s": None}
    for sql, answer in zip(
        WELL, fork(areas[uid], uid, WELL, body=body, together=True), strict=True
    ):
        assert answer["status"] == 0, f"{sql}: {answer['err']}"
        assert answer["changed"] == []


@pytest.mark.slow
def test_frames_are_what_the_tables_hold(areas: dict[int, Area]) -> None:
    root = areas[os.geteuid()].root
    rows = pools.frame(root, "SELECT * EXCLUDE (run_id, arm) FROM scores ORDER BY trace_id")
    assert rows.equals(sample_frame("scores").sort("trace_id"))
    assert pools.frame(root, "SELECT sum(n) AS n FROM task_scores").schema == {"n": pl.Int64}
    assert pools.frame(root, "SELECT 1", ["run-a"]).item() == 1
    with pools.connect(root) as con:
        assert con.execute("SELECT count(*) FROM scores").fetchone() == (rows.height,)
    cut = pools.answer(root, "FROM scores", limits=Limits(rows=3))
    assert (cut.frame.height, cut.truncated) == (3, True)
    whole = pools.answer(root, "FROM scores LIMIT 3", limits=Limits(rows=3))
    assert (whole.frame.height, whole.truncated) == (3, False)


def place(line: str, at: str) -> str:
    """Return the pattern of a quoted line and of the caret under a part of it."""
    return re.escape(f"\n{line}\n{' ' * line.index(at)}^")


@mutation(
    "a wrong question does not say where it is wrong", "genenv_core/storage/sql/duck.py",
    r'return f"\nline {number}: {line}"', r'return f"\nline {number}: "',
)  # fmt: skip
@mutation(
    "a caret stands beside its place", "genenv_core/storage/sql/duck.py",
    "caret and line.isascii() and line.isprintable()", "caret",
)  # fmt: skip
@mutation(
    "an error over the rows quotes what nobody wrote", "genenv_core/storage/sql/duck.py",
    "executed or isinstance(error, duckdb.ProgrammingError)", "True",
)  # fmt: skip
@mutation(
    "a wrong name does not say where it is", "genenv_core/storage/sql/sandbox_child.py",
    "        con.execute(sql)  # fails", "        pass  # fails",
)  # fmt: skip
@mutation(
    "a text of another type does not say where it is", "genenv_core/storage/sql/sandbox_child.py",
    "asking.con.execute(sql)  # fails", "pass  # fails",
)  # fmt: skip
@mutation(
    "a text of another type does not say what to do", "genenv_core/storage/sql/guidance.py",
    "(_OPEN | _UNFIT)", "_OPEN",
)  # fmt: skip
@pytest.mark.slow
def test_wrong_names_are_said_with_the_line_and_a_caret(
    areas: dict[int, Area], tmp_path: Path
) -> None:
    root = areas[os.geteuid()].root
    unknown = 'Binder Error: Referenced column "rewrad" not found.*reward.*'
    for sql, words in {
        "SELECT rewrad FROM scores": unknown + place("line 1: SELECT rewrad FROM scores", "rew"),
        "SELECT\n  rewrad\nFROM scores": unknown + place("line 2:   rewrad", "rew"),
        "SELECT reward\nFROM scores\n  WHERE rewrad > 0": unknown
        + place("line 3:   WHERE rewrad > 0", "rewrad"),
        "SELECT max2(1)": ".*max2 does not exist!.*" + place("line 1: SELECT max2(1)", "max2"),
        "FROM epocs": "'epocs' is no table or view, did you mean epochs\\?",
        "SELEC 1": '.*or near "SELEC", did you mean SELECT\\?' + place("line 1: SELEC 1", "SELEC"),
        "SELECT 1\nFROM scores\nWHER x": '.*near "x", did you mean WHERE\\?'
        + place("line 3: WHER x", "x"),
        "SELECT 'ü' FRM x": ".*at or near \"x\", did you mean FROM\\?\nline 1: SELECT 'ü' FRM x",
        "SELECT 1,\t2 FRM x": '.*at or near "x", did you mean FROM\\?\nline 1: SELECT 1,\t2 FRM x',
        "SELECT 1\nFROM scores WHERE epoch = 'two'": "Conversion Error: .* string 'two' to INT64: "
        "write a value of this type, or CAST the other side AS VARCHAR"
        + place("line 2: FROM scores WHERE epoch = 'two'", "'two'"),
        "SELECT run_id::INT FROM scores": "Conversion Error: Could not convert string 'run-a' to "
        "INT32 when casting from source column run_id: TRY_CAST gives NULL where a value does not "
        "fit",
    }.items():
        with pytest.raises(QueryError) as caught:
            pools.frame(root, sql)
        assert re.fullmatch(words, str(caught.value)), str(caught.value)
    with pytest.raises(QueryError, match="there is no run 'x' here; known: run-a"):
        pools.frame(root, "SELECT 1", ["x"])
    with pytest.raises(QueryError, match=r"there is no run under .*nowhere"):
        pools.frame(tmp_path / "nowhere", "SELECT 1")
    assert list(tmp_path.iterdir()) == []


@mutation(
    "a query may take for ever", SANDBOX,
    "            timeout=limits.seconds,\n", "            timeout=None,\n",
)  # fmt: skip
@mutation(
    "a query's process sees the environment", SANDBOX,
    "            env=environment(),\n", "            env={**os.environ, **environment()},\n",
)  # fmt: skip
def test_the_process_sees_no_environment_and_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[str, Any] = {}
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr(subprocess, "run", lambda _, **given: started.update(given))
    sandbox._run(b"", Limits(timeout_s=7))
    assert "PYTHONPATH" in started["env"] and SECRET not in str(started["env"])
    assert (started["timeout"], started["cwd"]) == (7, "/")


def test_modules_in_the_working_folder_are_not_imported(
    areas: dict[int, Area], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "duckdb.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    assert pools.frame(areas[os.geteuid()].root, "SELECT 1").item() == 1


def command(*arguments: str, other: bool = False) -> subprocess.CompletedProcess[str]:
    """Run `genenv sql` to its end; the other user may read the interpreter's files."""
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    become += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "GENENV_SANDBOX_SECRET": SECRET}
    return subprocess.run(
        [*(become if other else []), sys.executable, "-m", "flows.cli.app", "sql", *arguments],
        capture_output=True,
        text=True,
        cwd="/",
        env=environment,
        timeout=BOUND_S,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("other", users())
def test_the_command_line_refuses_with_one_line_and_status_2(
    other: bool, areas: dict[int, Area]
) -> None:
    if other and shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    if other and "://" in str(areas[os.geteuid()].root):
        pytest.skip("another user has another cache, and fills it first")
    area = areas[os.geteuid()]  # another user reads what is not theirs
    before = area.part.read_bytes()
    done = command(area.fill(ATTACKS["copy-analyze"]), "--root", str(area.root), other=other)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("genenv: EXPLAIN is read-only here")
    assert area.part.read_bytes() == before
    good = command("SELECT count(*) AS n FROM epochs", "--format", "json", "--root",
                   str(area.root), other=other)  # fmt: skip
    assert (good.returncode, good.stdout) == (0, '[{"n":2}]\n'), good.stderr


@pytest.mark.slow
def test_readers_of_a_root_that_is_written_see_whole_stages(tmp_path: Path) -> None:
    epochs = 7
    store = LocalStore(tmp_path / "root")
    log = RunLog(store, "run-a")
    config = {"arm": "genenv", "domain": {"name": "desk"}, "seed": 0, "epochs": 2 * epochs}
    log.open(config, START)
    commit_epoch(store, log, 0)
    writer = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.unit.storage.sql.test_sandbox",
            str(tmp_path / "root"),
            str(epochs),
        ],
        cwd=REPOSITORY,
    )
    sql = (
        "SELECT (SELECT count(*) FROM traces), (SELECT count(*) FROM scores), "
        "(SELECT count(*) FROM trace_tokens), (SELECT count(*) FROM epochs)"
    )
    per_epoch = sample_frame("traces").height // 2
    seen: list[int] = []
    try:
        until(lambda: writer.poll() is not None or (tmp_path / "begun").exists())
        while writer.poll() is None:
            with open_tables(pools.reader(tmp_path / "root")) as con:
                row = con.execute(sql).fetchone()
            assert row is not None
            traces, scores, tokens, done = row
            assert traces == scores == tokens == done * per_epoch
            seen.append(done)
            (tmp_path / f"read {done}").touch()
        apart = pools.frame(tmp_path / "root", "SELECT count(*) FROM epochs").item()
    finally:
        writer.kill()
        writer.wait()
    assert seen == sorted(seen)
    assert len(set(seen)) > 2, "the writer was too quick to be read"
    assert apart == epochs


def write_epochs(root: Path, epochs: int) -> None:
    """Commit epochs one after another: the writer of the test above."""
    store = LocalStore(root)
    log = RunLog(store, "run-a")
    (root.parent / "begun").touch()
    for epoch in range(1, epochs + 1):
        commit_epoch(store, log, epoch)
        if epoch % 2 == 0:  # so that it is read while there is more to write
            until((root.parent / f"read {epoch}").exists)


if __name__ == "__main__":
    write_epochs(Path(sys.argv[1]), int(sys.argv[2]))
