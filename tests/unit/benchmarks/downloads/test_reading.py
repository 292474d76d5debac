"""What comes from elsewhere is bounded, and no path leaves its folder.

Invariants: git ids are git's own; a zip with a path that leaves the folder, a link, two members of
one place, too many bytes or a fault writes nothing into place; an answer that is too long, breaks
off, stalls or is no 200 is an error that names the address; https never ends elsewhere; listings
are refused unless they are those that the parent names.
"""

from __future__ import annotations

import base64
import io
import socket
import stat
import zipfile
from pathlib import Path

import pytest

from genenv_core.benchmarks.downloads.archives import from_folders, unpack
from genenv_core.benchmarks.downloads.digests import (
    FILE_MODE,
    FOLDER_MODE,
    TreeEntry,
    git_id_of,
    git_id_of_bytes,
    git_id_of_entries,
    git_id_of_folder,
)
from genenv_core.benchmarks.downloads.listings import Commit
from genenv_core.benchmarks.downloads.origin import DownloadLimits, DownloadOrigin, leaves_https
from genenv_core.benchmarks.downloads.sources import tree_listing
from genenv_core.errors import ConfigError, DownloadError
from tests.mutations import mutation
from tests.unit.benchmarks.downloads.mirrors import (
    COMMIT,
    REPO,
    listing,
    put,
    put_commit,
    serving,
    zipped,
)

ARCHIVES = "genenv_core/benchmarks/downloads/archives.py"

EMPTY_FILE = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
MADE_BY_GIT = "d7c70d9e0320d31c7b3e27f58316239bf3a79b27"
EMPTY_FOLDER = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
HELLO = "ce013625030ba8dba906f756967f9e9ca394464a"
"""`printf 'hello\\n' | git hash-object --stdin`"""

ADDRESS = "https://host.example/some/file%20name"


def test_git_ids_are_those_of_git(tmp_path: Path) -> None:
    path = tmp_path / "hello.txt"
    path.write_bytes(b"hello\n")
    assert git_id_of(path) == git_id_of_bytes(b"hello\n") == HELLO
    assert git_id_of_bytes(b"") == EMPTY_FILE
    assert git_id_of_entries([]) == EMPTY_FOLDER
    # `git mktree`, with a folder that sorts as `a/`, so after `a.b`:
    entries = [TreeEntry(FOLDER_MODE, "a", EMPTY_FOLDER), TreeEntry(FILE_MODE, "a.b", HELLO)]
    assert git_id_of_entries(entries) == MADE_BY_GIT
    (tmp_path / ".DS_Store").write_bytes(b"x")
    assert git_id_of_folder(tmp_path) == git_id_of_entries(
        [TreeEntry(FILE_MODE, "hello.txt", HELLO)]
    )


def unpacked(content: bytes, folder: Path, most: int = 10**6) -> list[str]:
    archive = folder / "a.zip"
    archive.write_bytes(content)
    return unpack(archive, folder / "in" / "deep", from_folders(["train"], "game"), most)


def test_kept_members_go_below_their_folder(tmp_path: Path) -> None:
    members = {"any/where/train/t/1/game": b"g", "train/t/1/other": b"o", "test/t/1/game": b"n"}
    assert unpacked(zipped(members), tmp_path) == ["train/t/1/game"]
    assert (tmp_path / "in/deep/train/t/1/game").read_bytes() == b"g"


@mutation(
    "a path of an archive stays in its folder", ARCHIVES,
    'if any(part in ("", ".", "..") for part in parts) or set(name) & set("\\\\:\\0"):',
    'if set(name) & set("\\\\:\\0"):',
)  # fmt: skip
@pytest.mark.parametrize(
    "name",
    [
        "../../train/game",
        "train/../../../game",
        "/train/game",
        "train\\..\\game",
        "c:/train/game",
        "train/./game",
        "train//game",
        "../left-out",
    ],
)
def test_a_path_that_leaves_the_folder_refuses_the_archive(tmp_path: Path, name: str) -> None:
    with pytest.raises(DownloadError, match="may leave the folder: refused"):
        unpacked(zipped({"train/t/game": b"g", name: b"bad"}), tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["a.zip"]


@mutation(
    "an archive has no links", ARCHIVES, "if stat.S_ISLNK(member.external_attr >> 16):", "if False:"
)
def test_a_link_refuses_the_archive(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as opened:
        link = zipfile.ZipInfo("train/t/game")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        opened.writestr(link, "/etc/passwd")
    with pytest.raises(DownloadError, match="it has a link"):
        unpacked(out.getvalue(), tmp_path)


@mutation("an archive unpacks to so much at most", ARCHIVES, "if left < 0:", "if False:")
def test_a_zip_bomb_is_stopped_at_the_limit(tmp_path: Path) -> None:
    bomb = zipped({"train/t/game": b"\0" * 5_000_000})
    assert len(bomb) < 10_000
    with pytest.raises(DownloadError, match="unpacks to more than 1,000,000 bytes"):
        unpacked(bomb, tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    assert unpacked(bomb, other, 5_000_000) == ["train/t/game"]


def test_two_members_of_one_place_refuse_the_archive(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="two members for train/t/game"):
        unpacked(zipped({"a/train/t/game": b"1", "b/train/t/game": b"2"}), tmp_path)


@pytest.mark.parametrize("fault", ["no zip", "cut", "flipped"])
def test_a_broken_zip_is_refused(tmp_path: Path, fault: str) -> None:
    whole = zipped({"train/t/game": bytes(range(256)) * 9})
    broken = {
        "no zip": b"<html>sign in</html>",
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:60] + bytes([whole[60] ^ 255]) + whole[61:],
    }[fault]
    with pytest.raises(DownloadError, match=r"a\.zip: no whole zip"):
        unpacked(broken, tmp_path)


@mutation(
    "an answer has so many bytes at most", "genenv_core/benchmarks/downloads/origin.py",
    "if self.got > self.most:", "if False:",
)  # fmt: skip
def test_a_folder_and_a_server_are_the_same_mirror(tmp_path: Path) -> None:
    put(tmp_path, ADDRESS, b"content")
    with serving(tmp_path) as server:
        for mirror in (str(tmp_path), server.url, f"{server.url}/"):
            origin = DownloadOrigin(mirror)
            assert origin.read(ADDRESS, 7) == b"content"
            origin.save(ADDRESS, tmp_path / "saved", 7)
            assert (tmp_path / "saved").read_bytes() == b"content"
            with pytest.raises(DownloadError, match="more than the 6 bytes"):
                origin.read(ADDRESS, 6)
            with pytest.raises(DownloadError, match="other"):
                origin.read_all([(ADDRESS, 9), ("https://host.example/other", 9)])


def test_an_answer_that_breaks_off_stalls_or_refuses_names_its_address(tmp_path: Path) -> None:
    path = "/host.example/some/file%20name"
    put(tmp_path, ADDRESS, b"content" * 100)
    with serving(tmp_path) as server:
        origin = DownloadOrigin(server.url, DownloadLimits(pause_s=0.3, wait_s=0.01))
        server.cut.add(path)
        with pytest.raises(DownloadError, match="file%20name: "):
            origin.read(ADDRESS, 10_000)
        server.cut.clear()
        server.stalls.add(path)
        with pytest.raises(DownloadError, match="file%20name: no answer in time"):
            origin.read(ADDRESS, 10_000)
        with pytest.raises(DownloadError, match="HTTP 404"):
            DownloadOrigin(server.url).read("https://host.example/none", 10_000)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(DownloadError, match=r"127\.0\.0\.1"):
            DownloadOrigin(nobody).read(ADDRESS, 10_000)


def test_a_password_of_a_mirror_is_sent_and_in_no_message(tmp_path: Path) -> None:
    put(tmp_path, ADDRESS, b"content")
    with serving(tmp_path) as server:
        origin = DownloadOrigin(server.url.replace("//", "//me:hidd%40n@"))
        assert origin.read(ADDRESS, 7) == b"content"
        assert [base64.b64decode(one.split()[1]) for one in server.signed] == [b"me:hidd@n"]
        with pytest.raises(DownloadError, match="HTTP 404") as caught:
            origin.read("https://host.example/none", 7)
    assert "hidd" not in str(caught.value)


def test_a_busy_server_is_asked_again_a_few_times(tmp_path: Path) -> None:
    put(tmp_path, ADDRESS, b"content")
    with serving(tmp_path) as server:
        origin = DownloadOrigin(server.url, DownloadLimits(wait_s=0.01))
        server.busy = 2
        assert origin.read(ADDRESS, 7) == b"content"
        assert len(server.asked) == 3
        server.busy = 3
        with pytest.raises(DownloadError, match="HTTP 503"):
            origin.read(ADDRESS, 7)
        assert server.busy == 0


def test_https_does_not_end_elsewhere() -> None:
    assert leaves_https("https://a/b", "http://a/b")
    assert not leaves_https("https://a/b", "https://c/d")
    assert not leaves_https("http://127.0.0.1/b", "http://127.0.0.1/b")


@pytest.mark.parametrize("mirror", ["s3://bucket/x", "file:///tmp", "/no/such/folder"])
def test_a_mirror_is_a_folder_or_an_http_address(mirror: str) -> None:
    with pytest.raises(ConfigError, match="neither a folder nor an http"):
        DownloadOrigin(mirror)


def test_a_listing_is_that_which_its_parent_names(tmp_path: Path) -> None:
    ids = put_commit(tmp_path, {"a/b/one": b"1", "a/b/two": b"2", "a/c": b"3", "d": b"4"})
    commit = Commit(DownloadOrigin(str(tmp_path)), REPO, COMMIT)
    entries = commit.folder("a/b")
    assert git_id_of_entries(entries) == ids["a/b"]
    assert {one.name: content for one, content in commit.files("a/b", entries, 2)} == {
        "one": b"1", "two": b"2",
    }  # fmt: skip
    with pytest.raises(DownloadError, match="more than 1 bytes"):
        list(commit.files("a/b", entries, 1))
    for path in ("a/none", "a/c", "d"):
        with pytest.raises(DownloadError, match=f"no folder {path}"):
            commit.folder(path)


@mutation(
    "a listing is that which its parent names", "genenv_core/benchmarks/downloads/listings.py",
    "if name != self._commit and (found := git_id_of_entries(entries)) != name:",
    'if (found := git_id_of_entries(entries)) == "":',
)  # fmt: skip
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            listing([TreeEntry(FILE_MODE, "one", EMPTY_FILE)]),
            "expected git id .*, found .*: refused",
        ),
        (listing([TreeEntry(FILE_MODE, "../one", HELLO)]), "may leave the folder"),
        (listing([TreeEntry(FILE_MODE, "one", "no hex")]), "no listing of a folder"),
        (listing([], truncated=True), "cut off"),
        (b"<html>", "no listing of a folder"),
        (b"[1]", "no listing of a folder"),
        (b'{"tree": 1}', "no listing of a folder"),
    ],
)
def test_another_listing_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    ids = put_commit(tmp_path, {"a/one": b"hello\n"})
    put(tmp_path, tree_listing(REPO, ids["a"]), content)
    with pytest.raises(DownloadError, match=said):
        Commit(DownloadOrigin(str(tmp_path)), REPO, COMMIT).folder("a")
