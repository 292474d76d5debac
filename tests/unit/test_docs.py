"""The documents name only existing things.

Invariants: the README is one page, links the architecture on its first screen and shows the two
commands; every relative link leads to a file; every path, module, function or class that a document
names in code type is in the repository; every import that it shows works; each row of
docs/where.md names the file to open and its test; the project file, the images and the newest page
of the changelog have the version of `genenv_core/__init__.py`; no text of the product has a phrase
in which nobody acts; pictures of the page are small, each is shown, and the demo's report holds no
path of the machine that made it.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
from setuptools.config.pyprojecttoml import read_configuration

from genenv_core import __version__
from tests.mutations import mutation

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "infra/README.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
PACKAGES = ("genenv_core", "schemas", "tasks", "flows", "tests", "infra", "docs")


def named_paths(text: str) -> set[str]:
    """Return the paths of this repository in code type, without placeholders."""
    quoted = re.findall(r"`([^`\n]+)`", text)
    return {
        path.rstrip("/")
        for path in quoted
        if re.fullmatch(rf"({'|'.join(PACKAGES)})/[\w./-]*", path)
    }


def test_the_readme_is_one_page_with_the_way_to_the_architecture() -> None:
    lines = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 130
    assert any("(docs/architecture.md)" in line for line in lines[:25])
    assert {"make run", "make test"} <= {line.partition("#")[0].strip() for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (page.parent / link).exists(), f"{page.name} links {link}"
    for path in named_paths(text):
        assert (REPOSITORY / path).exists(), f"{page.name} names {path}"


def test_the_pictures_are_small_and_shown_and_the_report_names_no_machine() -> None:
    texts = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    pictures = sorted((REPOSITORY / "docs").glob("view-*.png"))
    assert len(pictures) >= 3
    for picture in pictures:
        head = picture.read_bytes()
        assert len(head) < 200_000 and int.from_bytes(head[16:20], "big") == 1000, picture.name
        assert f"{picture.name})" in texts, f"no page shows {picture.name}"
    report = (REPOSITORY / "docs" / "demo-report.html").read_text(encoding="utf-8")
    assert len(report) < 1_000_000 and "--root ~/.cache/genenv/demo/" in report
    assert not re.search(r"(?<![\w.~<])/(?:home|root|tmp|work|Users|var|usr|opt)/", report)


@mutation(
    "a row of docs/where.md that names no file",
    "docs/where.md",
    "`genenv_core/algorithm/admission.py`",
    "`genenv_core/algorithm/admissions.py`",
)
def test_each_row_of_where_names_a_file_and_its_test() -> None:
    page = (REPOSITORY / "docs" / "where.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!to change)(.+) \| (.+) \| (.+) \|$", page, re.M)
    assert len(rows) > 40
    for wish, files, tests in rows:
        assert named_paths(files) and named_paths(tests), wish
        assert all(path.startswith("tests/") for path in named_paths(tests)), wish
        for path in named_paths(files) | named_paths(tests):
            assert (REPOSITORY / path).exists(), f"{wish}: {path} is gone"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_imports_that_a_page_shows_work(page: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    for node in (node for block in blocks for node in ast.walk(ast.parse(block))):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")


def test_the_walks_name_functions_that_exist_and_count_their_modules() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    walks = re.findall(
        r"way to the (?:gradient|RWR loss)\n(.*?)These are (\d+) modules", text, re.S
    )
    assert len(walks) == 2
    for walk, count in walks:
        steps = re.findall(r"^\d+\. `([\w/]+\.py)`: `([\w.]+)`", walk, re.M)
        assert len({path for path, _ in steps}) == int(count)
        for path, name in steps:
            tree: ast.AST = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
            for part in name.split("."):
                found = [node for node in ast.walk(tree) if getattr(node, "name", None) == part]
                assert found, f"{path} has no {name}"
                tree = found[0]


@mutation(
    "a version in one place only",
    "genenv_core/__init__.py",
    '__version__ = "0.2.0"',
    '__version__ = "0.2.1"',
)
def test_the_version_is_the_same_everywhere() -> None:
    assert read_configuration(REPOSITORY / "pyproject.toml")["project"]["version"] == __version__
    changes = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)", changes, re.M)
    assert heads[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(__version__)}, \d{{4}}-\d\d-\d\d", heads[1])
    files = [one for one in (REPOSITORY / "infra").rglob("*") if one.suffix != ".lock"]
    files.append(REPOSITORY / "docs" / "kubernetes.md")
    texts = [one.read_text(encoding="utf-8") for one in files if one.is_file()]
    tag = r"genenv-(?:gpu|orchestrator):([\d.]+\d)|newTag: ([\d.]+)|\bV=([\d.]+)"
    tags = {"".join(found) for text in texts for found in re.findall(tag, text)}
    assert tags == {__version__}


def test_a_change_is_one_line_of_at_most_25_words() -> None:
    changes = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    long = [line for line in re.findall(r"^- (.*)", changes, re.M) if len(line.split()) > 25]
    assert not long


RIDDLES = re.compile(
    r"(?<!You )(?:is|are|was|were|be|been) (?:also )?told\b"
    r"|[Ww]hat is no (?!property)|why it (?:is|spells) none\b|let expect\b"
)
"""Phrases without an actor. Prompts say "You are told"; a message of BFCL's rows is in keys."""


@mutation(
    "a docstring in which nobody acts",
    "flows/cli/streams.py",
    "so that one error reports it",
    "so that it is told once",
)
def test_sentences_have_a_subject_that_acts() -> None:
    folders = ("flows", "genenv_core", "tasks", "schemas", "docs", "infra")
    files = [one for name in folders for one in (REPOSITORY / name).rglob("*.*")]
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in [*files, *PAGES]
        if path.suffix in {".py", ".md", ".sql", ".j2", ".txt", ".yaml"}
    }
    assert len(texts) > 500
    found = [
        f"{path.relative_to(REPOSITORY)}: {hit[0]}"
        for path, text in texts.items()
        for hit in RIDDLES.finditer(text)
    ]
    assert not found
