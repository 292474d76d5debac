"""The pinned sources, and the commands over them.

Invariants: every source is pinned and stays in its folder; what is pinned is what the official data
at hand has; all that a loader reads of a whole download is fetched, so that a mirror of the
official data gives the same digest; `check` counts items, names what is not scored, and is 0 only
where the data can be used; `fetch` is 1 while anything is lacking.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner, Result

from flows.cli.app import app
from genenv_core.benchmarks.bfcl.categories import MULTI_TURN, SINGLE_TURN
from genenv_core.benchmarks.downloads.checking import check
from genenv_core.benchmarks.downloads.fetching import fetch
from genenv_core.benchmarks.downloads.origin import DownloadOrigin
from genenv_core.benchmarks.downloads.sources import (
    Archive,
    BenchmarkSource,
    ByHand,
    HubFile,
    RepoFile,
    RepoFolder,
    ToolDocs,
    Wheel,
    source_of,
)
from genenv_core.benchmarks.downloads.state import FileState, looks
from genenv_core.benchmarks.registry import get_benchmark, known_benchmarks
from genenv_core.errors import ConfigError
from tests.unit.benchmarks.data import official
from tests.unit.benchmarks.downloads.mirrors import put, put_commit, serving, zipped

SHA1, SHA256 = re.compile("[0-9a-f]{40}"), re.compile("[0-9a-f]{64}")
FOLDERS = {"api_bank": "apibank"}


def run(*command: str | Path) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, command)])


@pytest.mark.parametrize("name", known_benchmarks())
def test_every_part_is_pinned_and_stays_in_its_folder(name: str) -> None:
    source = source_of(name)
    assert source.parts and source.items
    for part in source.parts:
        assert part.address.startswith("https://")
        places = list(part.members) if isinstance(part, Wheel) else [part.to]
        assert not any(".." in to or to.startswith("/") or "\\" in to for to in places)
        match part:
            case RepoFile() | RepoFolder():
                assert SHA1.fullmatch(part.commit) and SHA1.fullmatch(part.git_id)
            case ToolDocs():
                assert SHA1.fullmatch(part.commit) and SHA256.fullmatch(part.sha256)
            case HubFile():
                assert SHA1.fullmatch(part.revision)
            case Archive():
                assert SHA256.fullmatch(part.sha256)
            case Wheel():
                assert SHA256.fullmatch(part.sha256) and part.version in part.file
                assert all(SHA1.fullmatch(git_id) for _, git_id in part.members.values())
            case ByHand():
                assert SHA256.fullmatch(part.sha256) and part.to.startswith(f"{part.below}/")
    with pytest.raises(ConfigError, match="unknown"):
        source_of("nothing")


@pytest.mark.parametrize("name", known_benchmarks())
def test_what_is_pinned_is_what_the_official_data_has(name: str) -> None:
    folder = official(FOLDERS.get(name, name))
    found = [one for part in source_of(name).parts for one in looks(part, folder, {})]
    cut = {one.to for one in found if one.state is FileState.DIFFERENT}
    # PROVENANCE.txt names these as cut, and no other file.
    assert cut == {path for path in CUT if name == "bfcl"}
    assert any(one.state is FileState.EQUAL for one in found)
    groups = set(get_benchmark(name).load(folder).items.values())
    assert groups <= source_of(name).items.keys()


CUT = {
    "question/BFCL_v4_live_multiple.json",
    "possible_answer/BFCL_v4_live_multiple.json",
    "question/BFCL_v4_live_irrelevance.json",
}


def test_bfcl_has_all_scored_categories() -> None:
    (wheel,) = source_of("bfcl").parts
    assert isinstance(wheel, Wheel)
    categories = {category.name for category in (*SINGLE_TURN, *MULTI_TURN)}
    assert source_of("bfcl").items.keys() == categories
    for category in (*SINGLE_TURN, *MULTI_TURN):
        assert f"question/{category.file}" in wheel.members
        assert (f"possible_answer/{category.file}" in wheel.members) == category.kind.has_gold


def classes_of(docs: Path) -> dict[str, bytes]:
    """Return modules that declare what a file of tools says, as the official ones look."""
    folders = {"lv1_lv2": "api-bank/apis", "lv3": "api-bank/lv3_apis"}
    modules: dict[str, bytes] = {}
    for key, tools in json.loads(docs.read_bytes()).items():
        for tool in tools:
            fields = "".join(f"    {name} = {tool[name]!r}\n" for name in list(tool)[1:])
            text = f"from apis.api import API\n\nclass {tool['name']}(API):\n{fields}"
            modules[f"{folders[key]}/{tool['name'].lower()}.py"] = text.encode()
        modules[f"{folders[key]}/api.py"] = b"class API(ABC):\n    pass\n"
        modules[f"{folders[key]}/__init__.py"] = b""
    return modules


def api_bank_mirror(mirror: Path, data: Path) -> None:
    """Make a mirror of API-Bank's repository from the official data."""
    parts = source_of("api_bank").parts
    (docs,) = (part for part in parts if isinstance(part, ToolDocs))
    files = classes_of(data / docs.to)
    for part in parts:
        if isinstance(part, RepoFolder):
            for path in (data / part.to).iterdir():
                files[f"{part.path}/{path.name}"] = path.read_bytes()
        if isinstance(part, RepoFile):
            put(mirror, part.address, (data / part.to).read_bytes())
    put_commit(mirror, files, docs.repo, docs.commit)


@pytest.mark.slow
def test_a_mirror_of_api_bank_gives_the_same_data(tmp_path: Path) -> None:
    data, mirror = official("apibank"), tmp_path / "mirror"
    api_bank_mirror(mirror, data)
    with serving(mirror) as server:
        result = run("fetch", "api_bank", "--to", tmp_path / "to", "--from", server.url)
        assert result.exit_code == 0, result.output
        assert "fetched 214 of 214 files" in result.output
        asked = len(server.asked)
        assert (
            run("fetch", "api_bank", "--to", tmp_path / "to", "--from", server.url).exit_code == 0
        )
        assert len(server.asked) == asked
    found = check("api_bank", tmp_path / "to/api_bank")
    assert not found.fault and found.items == source_of("api_bank").items
    assert found.digest == get_benchmark("api_bank").load(data).digest
    assert {one.state for one in found.files} == {FileState.EQUAL}


def test_a_mirror_of_bamboogle_gives_the_same_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = official("bamboogle")
    (part,) = source_of("bamboogle").parts
    put(tmp_path / "mirror", part.address, (data / "test.csv").read_bytes())
    monkeypatch.setenv("GENENV_BENCHMARKS", str(tmp_path / "to"))
    result = run("fetch", "bamboogle", "--from", tmp_path / "mirror")
    assert result.exit_code == 0, result.output
    shown = run("check", "bamboogle", "--json")
    (found,) = json.loads(shown.stdout)
    assert shown.exit_code == 0
    assert found["digest"] == get_benchmark("bamboogle").load(data).digest
    assert found["items"] == {"questions": 125} and found["not_scored"] == []
    assert found["files"]["equal"] == ["test.csv"] and found["files"]["different"] == []


def test_archives_of_alfworld_give_the_same_data(tmp_path: Path) -> None:
    data, to = official("alfworld"), tmp_path / "to"
    for part in source_of("alfworld").parts:
        if isinstance(part, Archive):
            members = {
                path.relative_to(data).as_posix(): path.read_bytes()
                for path in data.glob("json_2.1.1/*/*/*/*")
            }
            content = zipped({**members, "json_2.1.1/tests_seen/t/1/game.tw-pddl": b"other"})
            put(tmp_path / "mirror", part.address, content)
            part = replace(part, sha256=hashlib.sha256(content).hexdigest())
            (outcome,) = fetch(
                BenchmarkSource([part]), to, DownloadOrigin(str(tmp_path / "mirror"))
            )
            assert outcome.ok, outcome.said
    alfworld = get_benchmark("alfworld")
    assert alfworld.load(to).digest == alfworld.load(data).digest
    found = check("alfworld", to)
    assert found.items == {"seen": 12, "unseen": 12} and found.not_scored == ["train"]
    assert len(found.of(FileState.AS_FETCHED)) == 2


def test_travelplanner_says_what_a_person_does_and_gets_the_rest(tmp_path: Path) -> None:
    data, mirror, to = official("travelplanner"), tmp_path / "mirror", tmp_path / "to"
    for part in source_of("travelplanner").parts:
        if isinstance(part, RepoFile):
            put(mirror, part.address, (data / part.to).read_bytes())
        elif isinstance(part, HubFile):
            put(mirror, part.address, b"idx\n1\n")
    result = run("fetch", "travelplanner", "--to", to, "--from", mirror)
    assert result.exit_code == 1
    assert result.output.count("NOT THERE") == 1 and "drive.google.com" in result.output
    assert str(to / "travelplanner/sandbox_database.zip") in result.output
    assert "no digest is published; sha256" in result.output
    found = check("travelplanner", to / "travelplanner")
    assert "flights" in found.fault
    assert found.of(FileState.AS_FETCHED) == ["train.csv", "validation.csv"]


def test_without_a_net_each_source_says_where_it_is_and_what_to_do(tmp_path: Path) -> None:
    result = run("fetch", "all", "--to", tmp_path / "to", "--from", "http://127.0.0.1:9")
    assert result.exit_code == 1
    lines = [line for line in result.output.splitlines() if "NOT THERE" in line]
    parts = [part for name in known_benchmarks() for part in source_of(name).parts]
    assert len(lines) == len(parts)
    for line, part in zip(lines, parts, strict=True):
        assert "--data DIR" in line or isinstance(part, ByHand)
        assert urlsplit(part.address).netloc in line
    assert not any(path.is_file() for path in (tmp_path / "to").rglob("*"))


def test_check_says_what_is_not_scored_and_what_differs(tmp_path: Path) -> None:
    data, to = official("bfcl"), tmp_path / "bfcl"
    for name in ("question/BFCL_v4_irrelevance.json", "question/BFCL_v4_live_irrelevance.json"):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_bytes((data / name).read_bytes())
    result = run("check", "bfcl", "--data", to)
    assert result.exit_code == 0, result.output
    assert "irrelevance: 240 items\n" in result.output
    assert "live_irrelevance: 200 items of 884\n" in result.output
    assert "not scored, for lack of items: simple_python, " in result.output
    assert "DIFFERENT" in result.output and "equal to the official ones: 1 " in result.output
    assert get_benchmark("bfcl").load(to).digest in result.output


def test_check_fails_where_nothing_can_be_scored(tmp_path: Path) -> None:
    result = run("check", "bamboogle", "--data", tmp_path / "none")
    assert result.exit_code == 1 and "CANNOT BE USED" in result.output
    (tmp_path / "bamboogle").mkdir()
    (tmp_path / "bamboogle/test.csv").write_bytes(b"Question,Answer\nWho?,Me\n")
    assert run("check", "bamboogle", "--data", tmp_path / "bamboogle").exit_code == 0
    every = run("check", "all", "--data", tmp_path)
    others = len(known_benchmarks()) - 1
    assert every.exit_code == 1 and every.output.count("CANNOT BE USED") == others
    (tmp_path / "bamboogle/.genenv-fetched.json").write_bytes(b"[{")
    assert run("check", "bamboogle", "--data", tmp_path / "bamboogle").exit_code == 0


@pytest.mark.parametrize(("command", "option"), [("fetch", "--to"), ("check", "--data")])
def test_a_folder_has_to_be_named(
    monkeypatch: pytest.MonkeyPatch, command: str, option: str
) -> None:
    monkeypatch.delenv("GENENV_BENCHMARKS", raising=False)
    error = run(command, "all").exception
    assert isinstance(error, ConfigError)
    assert option in str(error) and "GENENV_BENCHMARKS" in str(error)
    assert isinstance(run(command, "nothing", option, "/tmp").exception, ConfigError)


@pytest.mark.slow
def test_bfcl_comes_from_pypi_as_pinned(tmp_path: Path) -> None:
    result = run("fetch", "bfcl", "--to", tmp_path)
    assert result.exit_code == 0, result.output
    found = check("bfcl", tmp_path / "bfcl")
    assert not found.fault and found.items == source_of("bfcl").items
    assert len(found.of(FileState.EQUAL)) == len(found.files) == 39
    assert "there, verified" in run("fetch", "bfcl", "--to", tmp_path).output
