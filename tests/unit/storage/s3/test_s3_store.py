"""The store on a bucket, against moto's server and a proxy that makes requests fail.

Invariants: those of every store (`store_contract`), also when requests fail at random; a
conditional write with a lost answer reports truly whether it was written, also when others have
written since, or that nobody can tell; a lasting failure is one StorageError after a bounded time;
a store that ignores conditions is refused by name, and so are an endpoint that is no store and a
clock that is off; trouble that lasts is told once, and its end; no credential is in an error or a
log; large files go up in pieces and come down whole; damage is found and reported; downloads are
shared by digest and bounded.
"""

from __future__ import annotations

import io
import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from botocore.exceptions import ClientError, SSLError

from genenv_core.canonical import sha256
from genenv_core.errors import AlreadyExists, ConfigError, IntegrityError, StorageError
from genenv_core.storage import paths
from genenv_core.storage.store.leases import Lease, Leases
from genenv_core.storage.store.places import state_folder
from genenv_core.storage.store.protocol import Store
from genenv_core.storage.store.s3 import away as s3_away
from genenv_core.storage.store.s3 import cache as cache_module
from genenv_core.storage.store.s3 import faults as s3_faults
from genenv_core.storage.store.s3 import multipart as s3_multipart
from genenv_core.storage.store.s3 import requests as s3_requests
from genenv_core.storage.store.s3.bucket import Bucket
from genenv_core.storage.store.s3.cache import Cache
from genenv_core.storage.store.s3.requests import Head
from genenv_core.storage.store.s3.store import COLLECTOR, S3Store
from tests.mutations import mutation
from tests.unit.storage.s3.s3_double import BUCKET, CONDITIONS, Faults, OneAtATime, age, proxy
from tests.unit.storage.store_contract import StoreContract, content
from tests.waiting import BOUND_S, until

pytestmark = pytest.mark.slow

REQUESTS = "genenv_core/storage/store/s3/requests.py"


@pytest.fixture
def store(usual: str) -> S3Store:
    return S3Store(usual)


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def faulty(
    usual: str, server: str, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> Iterator[S3Store]:
    """The store behind the proxy."""
    monkeypatch.setattr(s3_requests, "PAUSE_S", 0.01)
    with proxy(server, faults) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield S3Store(usual)


class TestS3Store(StoreContract):
    """The contract, on a bucket."""

    # What processes do at once takes long here: the class below has it, with faults.
    test_racing_creators_have_one_winner = None
    test_racing_counters_lose_no_update = None
    test_killed_counters_lose_no_update_and_leave_no_lock = None
    test_a_reader_never_sees_half_a_replacement = None

    @pytest.fixture
    def store(self, usual: str) -> Store:
        return S3Store(usual)


class TestS3StoreWithFaults(StoreContract):
    """The contract while a request in ten fails, before or after it took effect."""

    racers = 4
    turns = 25

    @pytest.fixture
    def store(self, faulty: S3Store, faults: Faults) -> Iterator[Store]:
        faults.rate = 0.1
        yield faulty
        assert sum(faults.counts.values()) > faults.counts["requests"] or (
            faults.counts["requests"] < 50
        )


@pytest.mark.parametrize("fault", ["500", "503", "drop"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_does_not_hide_who_won(
    faulty: S3Store, faults: Faults, fault: str, when: str
) -> None:
    faults.plan.append(("PUT", "created", fault, when))
    faulty.create("created", b"mine")
    assert faulty.read("created") == b"mine"

    faults.plan.append(("PUT", "created", fault, when))
    with pytest.raises(AlreadyExists):
        faulty.create("created", b"mine")  # the very same bytes, and still somebody else's

    faulty.create("swapped", b"1")
    faults.plan.append(("PUT", "swapped", fault, when))
    assert faulty.swap("swapped", b"1", b"2") is True
    assert faulty.swap("swapped", b"1", b"3") is False

    faults.plan.append(("PUT", "replaced", fault, when))
    faulty.replace("replaced", b"1")
    faults.plan.append(("DELETE", "replaced", fault, when))
    faulty.delete("replaced")
    assert faulty.size("replaced") is None
    assert faults.plan == []


@pytest.mark.parametrize("later", [2, 60])
def test_a_lost_answer_is_found_below_later_writes(
    faulty: S3Store, faults: Faults, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    faulty.create("x", b"0")
    others_follow(faulty, later, monkeypatch)
    faults.plan.append(("PUT", "/x", "drop", "after"))
    assert faulty.swap("x", b"0", b"1") is True
    assert faulty.read("x") == b"%d" % (1 + later)


def test_a_lost_answer_below_too_many_writes_is_an_error(
    faulty: S3Store, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_requests, "REMEMBERED", 4)
    faulty.create("x", b"0")
    others_follow(faulty, 5, monkeypatch)
    faults.plan.append(("PUT", "/x", "drop", "after"))
    with pytest.raises(StorageError, match=r"s3://pools/.*/x: .*too many other writes followed"):
        faulty.swap("x", b"0", b"1")


@mutation(
    "a write whose trace another tool removed counts as refused", REQUESTS,
    '        if head.creator not in ("", before.creator):\n            return False\n',
    "        if len(head.writers) < REMEMBERED:\n            return False\n",
)  # fmt: skip
def test_a_lost_answer_below_a_write_of_another_tool_is_an_error(
    faulty: S3Store, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def copied(others: Bucket) -> None:
        assert (await others._get("x"))[0] == b"1"
        await others._asked("put_object", "x", Body=b"2")
        _, head = await others._get("x")
        assert await others._put("x", b"3", head, "")

    faulty.create("x", b"0")
    others_act(faulty, copied, monkeypatch)
    faults.plan.append(("PUT", "/x", "drop", "after"))
    with pytest.raises(StorageError, match=r"s3://pools/.*/x: .*, or one of another tool: run"):
        faulty.swap("x", b"0", b"1")


def test_a_lost_answer_for_an_object_that_was_made_anew_is_no_write(
    faulty: S3Store, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def anew(others: Bucket) -> None:
        await others._delete("x")
        assert await others._put("x", b"2", None, "")

    faulty.create("x", b"0")
    others_act(faulty, anew, monkeypatch)
    faults.plan.append(("PUT", "/x", "drop", "after"))
    assert faulty.swap("x", b"0", b"1") is False
    assert faulty.read("x") == b"2"


def others_follow(store: S3Store, writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another process replace x, 1 by 2 by 3, before `store` asks who refused its write."""

    async def follow(others: Bucket) -> None:
        for number in range(1, 1 + writes):
            data, head = await others._get("x")
            assert data == b"%d" % number
            assert await others._put("x", b"%d" % (number + 1), head, "")

    others_act(store, follow, monkeypatch)


def others_act(
    store: S3Store, act: Callable[[Bucket], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let another process do this before `store` asks who refused its write."""
    ours, others = store._bucket, S3Store(store.uri)._bucket
    real = ours._is_mine

    async def late(*arguments: object) -> bool:
        await act(others)
        return await real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ours, "_is_mine", late)


def test_the_bucket_of_these_tests_carries_out_each_request_as_a_whole() -> None:
    seen: list[bytes] = []

    def application(environ: dict[str, Any], _: object) -> list[bytes]:
        body = environ["wsgi.input"].read()
        seen.append(body)
        if body == b"first":
            second.start()
            until(lambda: bucket.waiting or len(seen) > 1)
        seen.append(body)
        return []

    def ask(body: bytes) -> None:
        bucket({"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}, None)

    bucket = OneAtATime(application)
    second = threading.Thread(target=ask, args=(b"second",))
    ask(b"first")
    second.join(BOUND_S)
    assert seen == [b"first", b"first", b"second", b"second"]


def test_trouble_that_stays_is_one_error_after_a_bounded_time(
    faulty: S3Store, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults.rate = 1.0
    monkeypatch.setattr(s3_requests, "LONGEST_PAUSE_S", 0.1)
    with pytest.raises(StorageError, match=r"s3://pools/.*/x: .*10 times: run the same command"):
        faulty.read("x")
    faults.rate = 0.0
    faulty.create("x", b"1")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what people heard of the store, without its address."""
    named = [one for one in caplog.records if one.name == "genenv.storage.s3"]
    said = [one.getMessage() for one in named if one.levelno >= logging.WARNING]
    return [re.sub(r"^s3://pools/\S*/:? ", "", one) for one in said]


@mutation(
    "nobody hears that a bucket answers again", REQUESTS,
    "                self._away.answered(path)\n                return done",
    "                return done",
)  # fmt: skip
def test_trouble_is_told_once_and_its_end(
    faulty: S3Store, faults: Faults, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    faulty.create("x", b"1")
    plan = [("GET", "/x", "500", "before")] * 3
    faults.plan = list(plan)
    assert faulty.read("x") == b"1"
    assert faults.plan == [] and told(caplog) == []  # too short for a word
    monkeypatch.setattr(s3_away, "SILENT_S", 0.0)
    faults.plan = list(plan)
    assert faulty.read("x") == b"1"
    trouble, end = told(caplog)
    assert trouble == "the store answered 500 InternalError; tried again for 0 s so far"
    assert end == "answers again"


@mutation(
    "every request to a bucket that is away says so", "genenv_core/storage/store/s3/away.py",
    "self._told is None and ", "",
)  # fmt: skip
def test_trouble_of_many_requests_is_told_once_and_no_end_where_there_is_none(
    faulty: S3Store, faults: Faults, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(s3_away, "SILENT_S", 0.0)
    monkeypatch.setattr(s3_requests, "LONGEST_PAUSE_S", 0.01)
    faults.rate = 1.0
    with pytest.raises(StorageError):
        faulty.read("x")
    assert len(told(caplog)) == 1
    faults.rate = 0.0
    faulty.create("x", b"1")
    assert len(told(caplog)) == 1
    faults.plan = [("GET", "/x", "500", "before")]
    faulty.read("x")
    assert len(told(caplog)) == 3  # it is told anew


def test_a_store_that_does_not_answer_is_given_up(
    usual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_requests, "LONGEST_PAUSE_S", 0.1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"no answer from http://127\.0\.0\.1:9"):
        S3Store(usual)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_store_that_ignores_conditions_is_refused_by_name(
    usual: str, server: str, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy(server, Faults(strip=(condition,))) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(ConfigError) as caught:
            S3Store(usual)
        assert f"{usual}: the store at {url} ignores conditional writes" in str(caught.value)
        assert condition in str(caught.value).lower()
        assert S3Store(usual, writable=False).list("") == []  # and the probe left nothing


def test_errors_name_what_is_wrong_with_the_account(
    usual: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StorageError, match=r"there is no bucket 'no-such' at http"):
        S3Store("s3://no-such/x")
    for uri in ("s3://", "s3://Bad_Name/x", f"s3://{BUCKET}/a/../b", "s3://me:s3cret@bucket/x"):
        with pytest.raises(ConfigError, match=r"write s3://BUCKET/PREFIX") as caught:
            S3Store(uri)
        assert "s3cret" not in str(caught.value)
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(StorageError, match=r"there are no AWS credentials: set AWS_ACCESS_KEY_ID"):
        S3Store(usual)
    assert secret not in caplog.text


def test_a_denied_request_is_an_error_at_once(faulty: S3Store, faults: Faults) -> None:
    for method, call in (
        ("GET", lambda: faulty.read("x")),
        ("PUT", lambda: faulty.create("x", b"1")),
        ("HEAD", lambda: faulty.size("x")),
        ("DELETE", lambda: faulty.delete("x")),
    ):
        faults.counts.clear()
        faults.plan.append((method, "/x", "403", "before"))
        with pytest.raises(StorageError, match=r"s3://pools/.*/x: access denied \(\w+\): check"):
            call()
        assert faults.counts["requests"] == 1


def test_lasting_faults_are_errors_at_once_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://ann:hunter2@host:9/x")
    assert s3_faults.endpoint() == "https://host:9/x"
    error = SSLError(endpoint_url="https://host", error="[SSL: CERTIFICATE_VERIFY_FAILED] x")
    assert s3_faults.fault(error) is None
    assert s3_faults.why(error, "b") == (
        "the certificate of https://host:9/x is not trusted: name its authority in AWS_CA_BUNDLE"
    )
    message = s3_faults.why(ValueError("Invalid endpoint: minio:9000"), "b")
    assert message.endswith("is no address of a store: write http://HOST:PORT")
    expired = {"Error": {"Code": "ExpiredToken"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    assert s3_faults.why(ClientError(expired, "PutObject"), "b").startswith(
        "access denied (ExpiredToken)"
    )


class _Page(BaseHTTPRequestHandler):
    """Answers every request with one status, type and body, as a web server that is no store."""

    protocol_version = "HTTP/1.1"
    answer: ClassVar[tuple[int, str, str]] = (200, "", "")

    def handle_any(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        status, kind, body = self.answer
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any

    def log_message(self, *args: object) -> None: ...


@pytest.fixture(name="page")
def a_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve a page in place of a store; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setattr(s3_requests, "LONGEST_PAUSE_S", 0.01)
    yield url
    server.shutdown()
    server.server_close()


@mutation(
    "a web page in place of a store is a lost object", REQUESTS,
    'if code == "NoSuchBucket" or foreign(error):', 'if code == "NoSuchBucket":',
)  # fmt: skip
@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ((200, "text/html", "<html>Console</html>"), "an answer without ETag"),
        ((200, "text/plain", ""), "an answer without ETag"),
        ((403, "text/html", "<html>"), "status 403 with text/html"),
        ((404, "text/html; charset=utf-8", "<html>"), "status 404 with text/html"),
        ((404, "application/json", '{"detail":"Not Found"}'), "status 404 with application/json"),
        ((501, "text/html", "Unsupported method ('PUT')"), "status 501 with text/html"),
        ((500, "text/html", "<html>"), "status 500 with text/html"),
    ],
)
def test_an_endpoint_that_is_no_store_is_named(
    usual: str, page: str, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str, str],
    shown: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(_Page, "answer", answer)
    with pytest.raises(StorageError) as caught:
        S3Store(usual, writable=answer[0] != 404).read("runs/x")
    said = str(caught.value)
    assert f"{page} answers, but not as S3 does ({shown}): it is no S3 store" in said
    assert "in AWS_ENDPOINT_URL or --endpoint-url" in said and "credentials" not in said


def test_a_page_is_no_empty_listing(usual: str, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Page, "answer", (200, "text/html", "<html>Console</html>"))
    with pytest.raises(StorageError) as caught:
        S3Store(usual, writable=False).names("runs")
    said = str(caught.value)
    assert f"{page} answers, but not as S3 does (a listing without Name): it is no S3" in said


@pytest.mark.timeout(60)  # where it fails, it hangs
def test_a_server_that_cannot_say_continue_holds_nothing_up(
    usual: str, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # HTTP/1.0 has no answer 100, which a body with `Expect: 100-continue` waits for.
    monkeypatch.setattr(_Page, "protocol_version", "HTTP/1.0")
    monkeypatch.setattr(_Page, "answer", (501, "text/html", "Unsupported method ('PUT')"))
    with pytest.raises(StorageError, match=f"{page} answers, but not as S3 does"):
        S3Store(usual).create("x", b"1")


@mutation(
    "a clock that is off is a matter of credentials", "genenv_core/storage/store/s3/faults.py",
    "    if skew := _skew(error):\n        return skew\n", "",
)  # fmt: skip
def test_a_clock_that_is_off_is_named(
    usual: str, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = datetime.now(UTC) + timedelta(minutes=90)
    error = (
        "<?xml version='1.0'?><Error><Code>RequestTimeTooSkewed</Code><Message>The difference is "
        f"too large.</Message><ServerTime>{there:%Y-%m-%dT%H:%M:%SZ}</ServerTime></Error>"
    )
    monkeypatch.setattr(_Page, "answer", (403, "application/xml", error))
    with pytest.raises(StorageError) as caught:
        S3Store(usual)
    said = str(caught.value)
    assert f"this machine's clock is 90 minutes behind that of {page}" in said
    assert "set the clock" in said and "credentials" not in said

    def refused(code: str, date: str) -> str:
        meta = {"HTTPStatusCode": 403, "HTTPHeaders": {"date": date}}
        answer = {"Error": {"Code": code}, "ResponseMetadata": meta}
        return s3_faults.why(ClientError(answer, "HeadObject"), "b")

    late, now = "Mon, 02 Jan 2006 15:04:05 GMT", format_datetime(datetime.now(UTC), usegmt=True)
    assert "ahead of that of" in refused("403", late)  # the answer to a HEAD has no code
    assert refused("403", now).startswith("access denied (403)")
    assert refused("AccessDenied", late).startswith("access denied (AccessDenied)")
    assert "clock differs too much" in refused("RequestTimeTooSkewed", "never")


def test_no_credential_is_logged(
    usual: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.DEBUG, "genenv"):
        S3Store(usual).create("x", b"1")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t0ken")
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"):
        assert os.environ[name] not in caplog.text


def test_a_large_file_goes_up_in_pieces(
    faulty: S3Store, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_multipart, "PIECE_BYTES", 5 * 2**20)
    data = os.urandom(12 * 2**20)
    path, work = content(data), faulty.scratch()
    for method, fault, when in (
        ("POST", "500", "before"), ("POST", "drop", "after"), ("PUT", "drop", "before"),
        ("PUT", "503", "after"), ("PUT", "drop", "after"),
    ):  # fmt: skip
        faults.plan.append((method, path, fault, when))
    (work / "x").write_bytes(data)
    faulty.adopt(work / "x", path)
    assert faulty.stats([path])[0] is not None
    faults.plan.append(("GET", path, "drop", "after"))
    assert faulty.sha256(path) == sha256(data)
    assert faults.plan == []
    # A finish whose answer is lost is no failure, and one that comes second changes nothing.
    (work / "y").write_bytes(data)
    faulty.adopt(work / "y", path)
    fresh = Cache(faulty.home / "fresh", 10**9)
    assert S3Store(faulty.uri, cache=fresh).local(path).read_bytes() == data


def test_a_large_object_is_read_while_others_make_it_young(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_multipart, "PIECE_BYTES", 5 * 2**20)
    monkeypatch.setattr(s3_multipart, "AHEAD", 1)
    data, work = os.urandom(12 * 2**20), store.scratch()
    (work / "x").write_bytes(data)
    path = content(data)
    store.adopt(work / "x", path)
    before, real, seen = store.mark(path), store._bucket._range, []

    async def touched(path: str, head: Head, start: int) -> bytes:
        seen.append(start)
        if len(seen) == 2:  # as by a writer that finds the part there
            assert await store._bucket._touch(path, head)
        return await real(path, head, start)

    monkeypatch.setattr(store._bucket, "_range", touched)
    assert store.sha256(path) == sha256(data)
    assert store.mark(path) != before and seen.count(0) == 2


def test_a_touch_of_what_is_too_large_for_one_copy(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_multipart, "COPY_BYTES", 5 * 2**20)
    data = os.urandom(12 * 2**20)
    path = content(data)
    store.replace(path, data)
    age(60)  # a bucket counts whole seconds
    before = store.modified(path)
    assert before is not None
    assert store.touch(path) is True
    after = store.modified(path)
    assert after is not None and after > before
    (stat,) = store.stats([path])
    assert stat and (stat.bytes, stat.sha256) == (len(data), sha256(data))
    assert store.sha256(path) == sha256(data)


def test_damage_is_found_and_reported(store: S3Store, tmp_path: Path) -> None:
    path = content(b"good")
    store.replace(path, b"good")
    fresh = S3Store(store.uri, cache=Cache(tmp_path / "fresh", 10**9))
    # Other bytes under the digest of the good ones, as if the bucket had lost some.
    head = store._bucket.head(path)
    assert head and store._bucket.put(path, b"evil", head, sha256(b"good"))
    (stat,) = fresh.stats([path])
    assert stat and stat.sha256 == sha256(b"good")
    with pytest.raises(IntegrityError, match=r"is altered: it came with the digest"):
        fresh.local(path)
    (stat,) = fresh.stats([path])
    assert stat and stat.sha256 != sha256(b"good")  # a miss for everybody from now on
    fresh.replace(path, b"good")
    assert fresh.local(path).read_bytes() == b"good"


def test_an_object_without_our_metadata_is_read_to_be_known(store: S3Store) -> None:
    path = content(b"rows")
    assert store._bucket.put(path, b"rows", None)
    (stat,) = store.stats([path])
    assert stat and stat.sha256 == ""
    assert store.sha256(path) == sha256(b"rows")


def test_downloads_are_shared_whole_and_heal(store: S3Store, tmp_path: Path) -> None:
    path = content(b"weights")
    store.replace(path, b"weights")
    other = S3Store(store.uri)
    assert other.local(path) == store.local(path)
    store._bucket.delete([path])
    assert store.local(path).read_bytes() == b"weights"  # the cache is exact for ever
    held = store.local(path)
    held.chmod(0o644)
    held.write_bytes(b"broken!")
    store.replace(path, b"weights")
    assert S3Store(store.uri).local(path).read_bytes() == b"weights"


def test_the_cache_is_bounded(store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = Cache(tmp_path / "small", 1_000)

    def put(byte: int) -> Path:
        data = bytes([byte]) * 300

        def write(target: Path) -> str:
            target.write_bytes(data)
            return sha256(data)

        return cache.fetch(sha256(data), ".bin", write)

    made = [put(byte) for byte in range(6)]
    assert all(path.exists() for path in made)  # somebody may be about to open them
    monkeypatch.setattr(cache_module, "IN_USE_S", 0.0)
    for old, path in enumerate(made):
        os.utime(path, (1000 + old, 1000 + old))
    put(99)
    left = [path.exists() for path in made]
    assert left == [False] * 4 + [True] * 2
    assert sum(p.stat().st_size for p in (tmp_path / "small" / "parts").rglob("*.bin")) <= 1_000


def test_what_is_adopted_counts_as_used_now(store: S3Store) -> None:
    work, path = store.scratch(), content(b"trained long ago")
    (work / "x").write_bytes(b"trained long ago")
    os.utime(work / "x", (1000, 1000))
    store.adopt(work / "x", path)
    held = next((store._cache.folder / "parts").rglob(Path(path).name))
    assert held.stat().st_mtime > 1000


def test_a_touch_waits_for_who_collects(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = content(b"old")
    store.replace(path, b"old")
    touched: list[bool] = []
    looks: list[bytes] = []
    look = Leases._is_over

    def looked(self: Leases, path: str, current: bytes, silent: bool) -> bool:
        looks.append(current)
        return look(self, path, current, silent)

    monkeypatch.setattr(Leases, "_is_over", looked)
    with store.collecting():
        writer = threading.Thread(target=lambda: touched.append(store.touch(path)))
        writer.start()
        until(lambda: len(looks) > 2)
        assert touched == []
        store._bucket.delete([path])  # what it had looked at before the touch
    writer.join(BOUND_S)
    assert touched == [False]
    assert store.size(paths.lease(*COLLECTOR)) is None


def test_leases_work_between_processes(store: S3Store) -> None:
    with Leases(store, ttl_s=1.0).hold("s", "k" * 64, lambda: None):
        path = paths.lease("s", "k" * 64)
        until(lambda: Lease.from_bytes(store.read(path)).beats > 1)
    assert store.list("leases") == []


def test_each_root_has_its_own_folder_here(usual: str) -> None:
    assert state_folder("s3://a/b") != state_folder("s3://a-b")
    assert S3Store(usual + "/").uri == usual
    assert S3Store(usual).home == S3Store(usual + "//").home
