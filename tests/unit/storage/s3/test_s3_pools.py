"""Roots on a bucket as people use them, against moto's server.

Invariants: queries answer as over a directory, also when listings hide objects, and fetch only the
tables that they name; a copy of a run, to a bucket and back, equals the run, continues where it was
cut off, and never mixes two runs; `verify` finds damage; gc, with ages by the bucket's clock, and
compaction work as in a directory; the commands take such a root.
"""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from genenv_core import pools
from genenv_core.errors import ConfigError, IntegrityError, QueryError
from genenv_core.storage import paths
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import id_named, query, tables_named
from genenv_core.storage.sql.sources import open_tables, source, sources
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.protocol import Store
from genenv_core.storage.store.s3.store import S3Store
from genenv_core.storage.upkeep import compaction
from genenv_core.storage.upkeep.collected import CollectionRule
from genenv_core.storage.upkeep.compaction import compact
from genenv_core.storage.upkeep.copying import copy_run
from genenv_core.storage.upkeep.gc import collect
from genenv_core.storage.upkeep.verify import verify
from schemas.registry import TABLES, schema
from schemas.relations import sql_name, views
from tests.unit.builders_root import HISTORY, fill
from tests.unit.builders_runs import write_run
from tests.unit.storage.s3.s3_double import Faults, age, proxy

pytestmark = pytest.mark.slow

RUN = "run-a"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run that `local` is a copy of."""
    root = tmp_path_factory.mktemp("filled") / "root"
    fill(LocalStore(root))
    return root


@pytest.fixture
def local(filled: Path, tmp_path: Path) -> LocalStore:
    return LocalStore(Path(shutil.copytree(filled, tmp_path / "root")))


@pytest.fixture
def remote(usual: str, local: LocalStore) -> S3Store:
    """The run of `local`, copied to a bucket."""
    store = S3Store(usual)
    copy_run(local, store, RUN)
    return store


def same_rows(first: Store, second: Store) -> None:
    """Assert that every table but the history has the same rows in both."""
    with open_tables(first, [RUN]) as before, open_tables(second, [RUN]) as after:
        for table in TABLES:
            if table not in HISTORY:
                text = f"FROM {sql_name(table)} ORDER BY ALL"
                assert query(before, text).equals(query(after, text)), table


def test_queries_answer_as_over_a_directory(
    local: LocalStore, remote: S3Store, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_rows(local, remote)
    text = "SELECT epoch, p_hat FROM epochs ORDER BY epoch"
    assert pools.frame(remote.uri, text).equals(pools.frame(local.uri, text))
    with pytest.raises(QueryError, match="there is no run under s3://"):
        pools.frame(f"{remote.uri}/nothing", text)
    # A listing that hides a manifest hides no row.
    key = RunLog(remote, RUN).keys(2)["pool"]
    with proxy(server, Faults(hidden=(key, "epochs/00001"))) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        same_rows(local, open_store(remote.uri, writable=False))


def test_a_query_fetches_the_tables_that_it_names(remote: S3Store, tmp_path: Path) -> None:
    fetched = tmp_path / "cache" / "parts"
    for path in fetched.rglob("*.parquet"):
        path.unlink()
    pools.frame(remote.uri, "SELECT count(*) FROM d_train")
    assert len(list(fetched.rglob("*.parquet"))) == 2  # one an epoch
    pools.frame(remote.uri, "SELECT count(*) FROM D_Train")
    assert len(list(fetched.rglob("*.parquet"))) == 2


def test_a_query_for_one_id_fetches_the_files_that_can_have_it(
    local: LocalStore, remote: S3Store, tmp_path: Path
) -> None:
    fetched = tmp_path / "cache" / "parts"
    with open_tables(local) as con:
        for table, known in TABLES.items():
            name, column = sql_name(table), known.id_column
            if table in HISTORY or schema(table)[column] != pl.String:
                continue
            ids = query(con, f"SELECT DISTINCT {column} AS id FROM {name} ORDER BY 1")["id"]
            for ident in [*ids.to_list(), "e", "zz"]:
                where = f"WHERE {column} = '{ident}'"
                assert id_named(f"SELECT * FROM {name} {where} LIMIT 3") == (table, ident)
                kept = source(local, RUN, tables={table}, only=(table, ident)).files.get(table)
                there = query(con, f"SELECT count(*) AS n FROM {name} {where}")["n"].item()
                count = f"SELECT count(*) FROM read_parquet({kept}) {where}"
                assert (duckdb.sql(count).fetchall()[0][0] if kept else 0) == there, (table, ident)
        ident = query(con, "SELECT max(trace_id) AS id FROM trace_tokens")["id"].item()
    for path in fetched.rglob("*.parquet"):
        path.unlink()
    text = f"SELECT trace_id, messages FROM trace_tokens WHERE trace_id = '{ident}'"
    assert pools.frame(remote.uri, text).height == 1
    assert len(list(fetched.rglob("*.parquet"))) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM traces WHERE trace_id = 'x' OR true",
        "SELECT * FROM traces WHERE trace_id = 'x' IS FALSE",
        "SELECT * FROM traces WHERE trace_id = 'x' = false",
        "SELECT * FROM traces WHERE trace_id = 'x' COLLATE NOCASE",
        "SELECT * FROM traces WHERE NOT trace_id = 'x'",
        "SELECT * FROM traces WHERE trace_id = 'it''s'",
        "SELECT * FROM traces WHERE epoch = 'x'",
        "SELECT * FROM traces WHERE trace_id = 'x' UNION ALL FROM traces",
        "SELECT (SELECT count(*) FROM traces) FROM traces WHERE trace_id = 'x'",
        "SELECT * FROM traces, traces WHERE trace_id = 'x'",
        "FROM traces t JOIN traces u USING (trace_id) WHERE trace_id = 'x'",
        "SELECT * FROM epochs WHERE epoch = 'x'",
        "SELECT * FROM traces WHERE trace_id = 'x' -- ' AND true",
        "SELECT /* FROM a WHERE */ * FROM traces WHERE trace_id = 'x'",
        "WITH y AS (SELECT 1) SELECT * FROM traces WHERE trace_id = 'x'",
        "SELECT * FROM traces WHERE trace_id = 'x' AND EXISTS (FROM traces)",
        "SELECT * FROM traces WHERE trace_id = 'x' AND EXISTS (TABLE traces)",
        "SELECT * FROM checkpoints WHERE epoch = '10'",
    ],
)
def test_a_query_that_is_not_plain_reads_all_rows(sql: str) -> None:
    assert id_named(sql) is None


def test_a_query_spells_the_tables_that_its_views_read() -> None:
    assert tables_named("SELECT 1") == set()
    assert tables_named('SELECT * FROM "TRACES" -- scores') == {"traces", "scores"}
    for view in views():
        read = {table for table in view.reads if table in TABLES}
        assert tables_named(f"FROM {view.name}") >= read


def test_only_tables_that_a_query_spells_can_give_it_rows(local: LocalStore) -> None:
    calls: dict[frozenset[str], list[str]] = {}
    for view in views():
        call = f'FROM "{view.name}"' + ("()" if view.parameters else "") + " ORDER BY ALL"
        calls.setdefault(frozenset(tables_named(call)), []).append(call)
    with open_tables(local) as whole:
        for named, texts in calls.items():
            with open_tables(local, tables=named) as part:
                for call in texts:
                    assert query(whole, call).equals(query(part, call)), call


def test_a_copy_is_the_run_and_goes_both_ways(
    local: LocalStore, remote: S3Store, tmp_path: Path
) -> None:
    again = copy_run(local, remote, RUN)
    assert (again.copied_files, again.copied_bytes) == (0, 0)
    assert again.files > 0
    back = LocalStore(tmp_path / "back")
    done = copy_run(remote, back, RUN)
    assert done.copied_files == done.files == again.files
    for folder in ("parts", "stages"):
        assert {p: back.read(p) for p in back.list(folder)} == {
            p: local.read(p) for p in local.list(folder)
        }
    assert verify(back).damaged == verify(remote).damaged == []
    assert RunLog(back, RUN).info().config["root"] == back.uri
    with pytest.raises(ConfigError, match="name another root"):
        copy_run(local, LocalStore(local.root), RUN)


@pytest.mark.parametrize("there", [True, False], ids=["to a bucket", "back"])
def test_a_copy_that_is_cut_off_twice_goes_on(
    local: LocalStore, usual: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    target: Store = S3Store(usual)
    source: Store = local
    if not there:
        copy_run(local, target, RUN)
        source, target = target, LocalStore(tmp_path / "back")
    kind = type(target)
    real, sent = kind.adopt, list[str]()

    def cut(self: Any, file: Path, path: str) -> None:
        if len(sent) % 6 == 5:
            sent.append("")
            raise KeyboardInterrupt
        sent.append(path)
        real(self, file, path)

    monkeypatch.setattr(kind, "adopt", cut)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            copy_run(source, target, RUN)
        assert target.names("runs") == target.list("stages") == []  # nothing names what is missing
    monkeypatch.setattr(kind, "adopt", real)
    done = copy_run(source, target, RUN)
    assert done.files - done.copied_files == len(list(filter(None, sent))) > 5
    same_rows(source, target)
    assert verify(target).damaged == [] and target.names("tmp") == []


def test_a_copy_never_mixes_two_runs_nor_takes_damage_along(
    local: LocalStore, remote: S3Store, tmp_path: Path
) -> None:
    other = LocalStore(tmp_path / "other")
    fill(other, RUN)
    log = RunLog(other, RUN)
    log.open({**log.info().config, "seed": 7}, datetime.now(UTC))
    with pytest.raises(ConfigError, match=r"has another run 'run-a', with another configuration"):
        copy_run(other, remote, RUN)
    with pytest.raises(ConfigError, match=r"there is no run 'nope' here; known: run-a"):
        copy_run(local, remote, "nope")
    damaged = local.root / local.list("parts")[0]
    damaged.chmod(0o644)
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    with pytest.raises(IntegrityError, match=r"part .* of run run-a cannot be copied"):
        copy_run(local, LocalStore(tmp_path / "third"), RUN)


def test_a_copy_heals_what_is_damaged_where_it_goes_and_keeps_it_from_gc(
    local: LocalStore, remote: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, *others = remote.list("parts")
    head = remote._bucket.head(short)
    assert head and remote._bucket.put(short, b"cut off", head, head.sha256)
    age(60)
    before = {path: remote.modified(path) for path in others}
    assert copy_run(local, remote, RUN).copied_files == 1
    assert verify(remote).damaged == []
    for path, modified in before.items():  # of an interrupted copy, it may be days old
        now = remote.modified(path)
        assert now and modified and now > modified


def test_a_copy_of_a_run_that_went_on_there_takes_nothing_back(
    local: LocalStore, remote: S3Store
) -> None:
    log = RunLog(remote, RUN)
    began = log.info().started_at
    log.open({**log.info().config, "epochs": 9}, datetime.now(UTC))
    log.note_key(3, "pool", "k" * 64)
    copy_run(local, remote, RUN)
    assert (log.info().config["epochs"], log.info().started_at) == (9, began)
    assert log.keys(3) == {"pool": "k" * 64}


def test_a_copy_brings_back_weights_that_were_collected_there(usual: str, tmp_path: Path) -> None:
    source, target = LocalStore(tmp_path / "root"), S3Store(usual)
    write_run(source, RUN, 4, weights=True)
    first = copy_run(source, target, RUN)
    age(60)
    rule = CollectionRule(1, older_than_h=1 / 3600)
    gone = collect(target, rule, datetime.now(UTC), dry_run=False).kinds["weights"].count
    assert gone > 0
    again = copy_run(source, target, RUN)
    assert (again.copied_files, again.retired) == (gone, 0) and first.retired == 0
    assert target.list("retired") == []
    assert verify(target).damaged == []


def test_verify_finds_what_differs_in_the_bucket(remote: S3Store) -> None:
    part, manifest = remote.list("parts")[0], remote.list("stages")[0]
    head = remote._bucket.head(part)
    assert head and remote._bucket.put(part, b"x" * head.bytes, head, head.sha256)
    remote.replace(manifest, remote.read(manifest).replace(b"pool", b"loop"))
    report = verify(remote)
    assert {damage.path for damage in report.damaged} >= {part, manifest}
    assert verify(remote).damaged == report.damaged


def test_gc_and_compaction_work_on_a_bucket(usual: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3Store(usual)
    monkeypatch.setattr(compaction, "FAN", 4)
    write_run(store, RUN, 4, weights=True, best=2)  # type: ignore[arg-type]
    with open_tables(store) as con:
        before = query(con, "FROM scores ORDER BY ALL")
    orphan = paths.part("f" * 64, ".parquet")
    store.create(orphan, b"orphan")
    assert compact(store, RUN).segments == 1
    with open_tables(store) as con:
        assert query(con, "FROM scores ORDER BY ALL").equals(before)
    now = datetime.now(UTC)
    young = collect(store, CollectionRule(1, older_than_h=1), now, dry_run=False)
    assert young.paths == []  # by the bucket's clock all of it is new
    age(60)
    planned = collect(store, CollectionRule(1, older_than_h=1 / 3600), now, dry_run=True)
    found = collect(store, CollectionRule(1, older_than_h=1 / 3600), now, dry_run=False)
    assert sorted(found.paths) == sorted(planned.paths)
    assert found.kinds["weights"].count == 4  # two policies of epochs 1 and 3
    assert orphan in found.paths and store.size(orphan) is None
    with open_tables(store) as con:
        assert query(con, "FROM scores ORDER BY ALL").equals(before)
    assert verify(store).damaged == []
    assert store.list("leases") == []


def test_the_commands_take_a_bucket(remote: S3Store, usual: str, server: str, tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")  # the option goes first

    def genenv(*arguments: str) -> str:
        command = ["--endpoint-url", server, *arguments]
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    assert "1 runs" in genenv("status", "--root", usual) or RUN in genenv("status", "--root", usual)
    rows = genenv("sql", "SELECT count(*) AS n FROM epochs", "--format", "json", "--root", usual)
    assert json.loads(rows) == [{"n": 2}]
    assert "0 damaged" in genenv("verify", "--root", usual)
    assert "would be freed" in genenv("gc", "--dry-run", "--root", usual)
    to = str(tmp_path / "copied")
    answer = json.loads(genenv("copy", RUN, to, "--root", usual, "--json"))
    assert answer["from"] == usual and answer["copied_files"] == answer["files"]
    assert len(sources(LocalStore(Path(to)))) == 1
