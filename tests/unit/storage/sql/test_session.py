"""A process that answers many queries.

Invariants: it gives what a process for one query gives, under the same confinement; a query that
fails leaves it as it was; one that takes too long ends it, and says so; it outlives the thread
that began it, and nothing outlives it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from genenv_core.errors import QueryError
from genenv_core.storage.sql.sandbox import Limits, ask
from genenv_core.storage.sql.session import SqlSession
from genenv_core.storage.sql.sources import sources
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_root import small_root
from tests.waiting import until

QUESTIONS = ("FROM runs", "FROM epochs ORDER BY epoch", "SELECT 1 AS a, 2 AS a")


@pytest.fixture(name="found", scope="module")
def what_there_is(tmp_path_factory: pytest.TempPathFactory):
    """Return the tables of a small root."""
    return sources(small_root(tmp_path_factory.mktemp("session") / "root"))


@pytest.fixture(name="session", scope="module")
def a_session(found) -> Iterator[SqlSession]:
    """Return a session that every test leaves alive."""
    made = SqlSession(found, Limits(timeout_s=60, memory="300MB", rows=1000))
    yield made
    made.close()


@pytest.mark.parametrize(
    "sql",
    some(QUESTIONS, QUESTIONS[:1]),
)
def test_it_gives_what_a_process_of_its_own_gives(sql: str, session: SqlSession, found):
    assert session.ask(sql).frame.equals(ask(found, sql).frame)


@pytest.mark.parametrize(
    "sql",
    [
        "SELEC",
        "FROM nowhere",
        "SELECT * FROM read_text('/etc/passwd')",
        "COPY runs TO '/tmp/never.csv'",
        "SELECT 1; SELECT 2",
        "SELECT error('no')",
        "SELECT repeat('x', 100000000) || i FROM range(100) t(i)",
    ],
)
def test_a_query_that_fails_leaves_it_as_it_was(sql: str, session: SqlSession):
    with pytest.raises(QueryError):
        session.ask(sql)
    assert session.ask("SELECT count(*) AS n FROM runs").frame.item() == 1


def test_answers_are_cut_off_at_the_limit(session: SqlSession):
    answer = session.ask("FROM range(5000)")
    assert answer.frame.height == 1000
    assert answer.truncated


def test_threads_get_their_own_answers(session: SqlSession):
    got: dict[int, int] = {}

    def work(number: int) -> None:
        for _ in range(5):
            got[number] = session.ask(f"SELECT {number} AS n").frame.item()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {number: number for number in range(8)}


@mutation(
    "a query that takes too long is said to need memory", "genenv_core/storage/sql/session.py",
    "        if late.is_set():\n", "        if False:\n",
)  # fmt: skip
@pytest.mark.slow
def test_a_query_that_takes_too_long_ends_it(found):
    made = SqlSession(found, Limits(timeout_s=0.5))
    with pytest.raises(QueryError, match="took more than"):
        made.ask("SELECT sum(a.range * b.range) FROM range(10000000) a, range(1000000) b")
    assert not made.alive
    with pytest.raises(QueryError):
        made.ask("FROM runs")
    made.close()


@mutation(
    "a session ends with the thread that began it", "genenv_core/storage/sql/session.py",
    "self._process = _attended()", "self._process = _begun()",
)  # fmt: skip
def test_it_outlives_the_thread_that_began_it(found):
    with ThreadPoolExecutor(1) as other:
        made = other.submit(SqlSession, found).result()
    for number in range(3):
        assert made.ask(f"SELECT {number} AS n").frame.item() == number
    assert made.alive
    made.close()


@mutation(
    "a process that has just ended still counts as alive", "genenv_core/storage/sql/session.py",
    "            self._process.wait(_ENDING_S)\n        status", "            pass\n        status",
)  # fmt: skip
def test_one_that_ended_says_how_and_is_no_more_alive(found):
    made = SqlSession(found)
    made._process.terminate()
    with pytest.raises(QueryError, match="ended with status -15: ask again"):
        made.ask("FROM runs")
    assert not made.alive
    made.close()


@pytest.mark.slow
def test_it_is_gone_when_it_is_closed_or_retired(found):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    one, two = SqlSession(found), SqlSession(found)
    one.close()
    two.retire()
    until(lambda: not two.alive)
    after = {child.pid for child in psutil.Process().children(recursive=True)}
    assert after <= before
