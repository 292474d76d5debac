"""A domain of one's own by its place, and what of its code and files is in the keys.

Invariants: a class in a file, in a package or in a module of the current folder is found, siblings
of the file too; nothing of it hides a library; a name that leads nowhere says what to do. Every
module of the plug-in that is imported counts, by relative imports too, and so do the files that
the domain names; comments, other files of the folder and libraries do not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import genenv_core.storage.records.code as code
from genenv_core.config.load import resolve
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError
from tasks import score
from tasks.stage.key import chosen_modules, domain_of, parts_of
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_stage import NO_INPUTS

Write = Callable[[str, str], None]

DOMAIN = """
from {judging} import judge
import helpers_of_units

class Units:
    name, version, tools = "units", "1", ()
    files = ("words.txt",)

    def __init__(self, options):
        self.options = options

class Other(Units):
    @classmethod
    def from_options(cls, options):
        return cls({{"made": "otherwise"}})
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write the files of a domain into the current folder; forget its modules afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = set(sys.modules)

    def file(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")

    file("lengths.py", DOMAIN.format(judging="judging_units"))
    file("judging_units.py", "import math\n\ndef judge():\n    return 1\n")
    file("helpers_of_units.py", "VALUE = 1\n")
    file("unread.py", "VALUE = 1\n")
    file("words.txt", "a b c\n")
    yield file
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    _forget()


def _forget() -> None:
    for cached in (code.code_version, code._read, code._source):
        cached.cache_clear()


def part(name: str) -> tuple[str, str]:
    """Return what of a key depends on the domain: its code, and its version with its files."""
    _forget()
    config = resolve("tiny", fields={"domain": {"name": name}})
    parts = parts_of(score.STAGE, config, 1, NO_INPUTS)
    return parts["code"], parts["runtime"]["domain"]


@pytest.mark.parametrize("name", ["lengths.py:Units", "lengths:Units", "./lengths.py:Units"])
def test_a_class_is_found_by_its_place(write: Write, name: str) -> None:
    domain = get_domain(name, {"a": 1})
    assert type(domain).__name__ == "Units" and domain.options == {"a": 1}  # type: ignore[attr-defined]


def test_a_file_elsewhere_brings_its_folder(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    assert get_domain(f"{tmp_path}/lengths.py:Units").name == "units"
    assert sys.path.index(str(tmp_path)) == len(sys.path) - 1


def test_a_class_may_say_how_it_is_made(write: Write) -> None:
    assert get_domain("lengths.py:Other").options == {"made": "otherwise"}  # type: ignore[attr-defined]


def test_a_file_of_a_package_is_imported_as_its_module(write: Write, tmp_path: Path) -> None:
    write("pack/__init__.py", "")
    write("pack/judging.py", "from . import deep\n\ndef judge():\n    return 1\n")
    write("pack/deep.py", "VALUE = 1\n")
    write("pack/lengths.py", DOMAIN.format(judging=".judging"))
    domain = get_domain("pack/lengths.py:Units")
    assert type(domain).__module__ == "pack.lengths"
    before = part("pack/lengths.py:Units")
    for name in ("pack/deep.py", "pack/judging.py", "pack/__init__.py", "helpers_of_units.py"):
        with (tmp_path / name).open("a") as file:
            file.write("\nMORE = 1\n")
        after = part("pack/lengths.py:Units")
        assert after[0] != before[0], name
        before = after


LOOSE = ("loose.py:Units", "loose/inner.py:Units", "loose.inner:Units")


@pytest.mark.parametrize("name", some(LOOSE, LOOSE[-1:]))
def test_folders_without_a_package_file_count(write: Write, tmp_path: Path, name: str) -> None:
    write("loose.py", DOMAIN.format(judging="rules.judging"))
    write("loose/inner.py", DOMAIN.format(judging="rules.judging"))
    (tmp_path / "rules").mkdir()
    write("rules/judging.py", "def judge():\n    return 1\n")
    if name == "loose.inner:Units":
        (tmp_path / "loose.py").unlink()
    elif name == "loose/inner.py:Units":
        (tmp_path / "loose" / "rules").mkdir()
        (tmp_path / "rules").rename(tmp_path / "loose" / "rules")
        write("loose/helpers_of_units.py", "VALUE = 1\n")
    before = part(name)
    for path in (*tmp_path.rglob("judging.py"), *tmp_path.rglob("inner.py")):
        path.write_text(path.read_text() + "MORE = 1\n")
        if path.name == "judging.py" or "inner" in name:
            assert part(name) != before, path
            before = part(name)


def test_a_function_that_makes_the_domain_counts(write: Write) -> None:
    made = "from lengths import Units\n\ndef make(options):\n    return Units({'top': %d})\n"
    write("making.py", made % 1)
    before = part("making.py:make")
    write("making.py", made % 2)
    assert part("making.py:make")[0] != before[0]


@pytest.mark.parametrize(
    "content",
    [
        b"# -*- coding: latin-1 -*-\nWORD = 'caf\xe9'\n",
        b"\xef\xbb\xbfVALUE = 1\n",
        b"def (\n",
        b"VALUE = '\xff'\n",
        b"VALUE = 1\0\n",
    ],
)
def test_a_module_counts_in_any_encoding_and_broken(
    write: Write, tmp_path: Path, content: bytes
) -> None:
    write("lengths.py", DOMAIN.format(judging="judging_units") + "\ndef later():\n    import odd\n")
    (tmp_path / "odd.py").write_bytes(content)
    before = part("lengths.py:Units")
    (tmp_path / "odd.py").write_bytes(content + b"MORE = 1\n")
    assert part("lengths.py:Units") != before


@mutation(
    "a file without its class is an unknown domain", "genenv_core/plugins.py",
    'if not points and name.endswith(".py"):', "if False:",
)  # fmt: skip
@mutation(
    "a misspelled class is an error of Python", "genenv_core/machine/plugin_failures.py",
    "point.attr and not hasattr(module, point.attr)", "False",
)  # fmt: skip
@mutation(
    "the line of a plug-in that failed is left out", "genenv_core/machine/plugin_failures.py",
    "        if frame.filename.endswith(own)\n", "        if False\n",
)  # fmt: skip
@mutation(
    "nobody says from where a relative path is read", "genenv_core/plugins.py",
    "            if path.is_absolute()\n", "            if True\n",
)  # fmt: skip
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere.py:Units", "change into the right one, or write the whole path"),
        ("/nowhere.py:Units", "there is no file /nowhere.py"),
        (f"{'long' * 100}.py:Units", "there is no file"),
        ("lengths.py:Nobody", "lengths has no 'Nobody'; its own classes are Other, Units"),
        ("lengths.py", "names a file and no class in it: add the class, as in lengths.py:MyClass"),
        (
            "nowhere:Units",
            "no module 'nowhere' for the plug-in nowhere:Units: install",
        ),
        ("lengths.py:", "as in my_domain.py:Units"),
        (":Units", "as in my_domain.py:Units"),
        ("my-lengths.py:Units", "rename the file"),
        ("json.py:Units", "under the name 'json': rename the file"),
        ("a/b:Units", "neither a .py file nor a module"),
        ("broken.py:Units", "(broken.py, line 1): mend its code"),
        ("raises.py:Units", "failed with ValueError: no (raises.py, line 3): mend its code"),
        ("units", "my_domain.py:Units"),
    ],
)
def test_a_name_that_leads_nowhere_says_what_to_do(write: Write, name: str, words: str) -> None:
    for file in ("my-lengths.py", "json.py"):
        write(file, "class Units: pass\n")
    write("broken.py", "class Units(:\n")
    write("raises.py", "class Units:\n    def __init__(self, _):\n        raise ValueError('no')\n")
    with pytest.raises(ConfigError) as caught:
        get_domain(name)
    assert "domain.name" in str(caught.value) and words in str(caught.value)


@mutation(
    "a module beside a plug-in is in no key", "genenv_core/storage/records/code.py",
    ", *(one for one in tops if _together(one, top))}", "}",
)  # fmt: skip
@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ("lengths.py", True),
        ("judging_units.py", True),
        ("helpers_of_units.py", True),
        ("unread.py", False),
    ],
)
def test_every_module_beside_it_that_it_imports_is_in_the_key(
    write: Write, tmp_path: Path, changed: str, counts: bool
) -> None:
    before = part("lengths.py:Units")
    with (tmp_path / changed).open("a") as file:
        file.write("# a comment\n")
    assert part("lengths.py:Units") == before
    with (tmp_path / changed).open("a") as file:
        file.write("MORE = 1\n")
    assert (part("lengths.py:Units") != before) is counts


@mutation("a plug-in's files are in no key", "tasks/stage/key.py", ", *_file_digests(domain)]", "]")
def test_the_files_that_it_names_are_in_the_key(write: Write, tmp_path: Path) -> None:
    before = part("lengths.py:Units")
    os.utime("words.txt", (1, 1))
    assert part("lengths.py:Units") == before
    write("words.txt", "a b d\n")
    after = part("lengths.py:Units")
    assert after[0] == before[0] and after[1] != before[1]
    (tmp_path / "words.txt").unlink()
    with pytest.raises(ConfigError, match=r"units: its file /.*words\.txt cannot .*__file__"):
        part("lengths.py:Units")


def test_what_is_installed_counts_by_its_distribution(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "_installed", lambda: frozenset([str(tmp_path)]))
    owners = {"lengths": ["lengths"], "judging_units": ["lengths"], "helpers_of_units": ["helpers"]}
    monkeypatch.setattr(code, "_distributions", lambda: owners)
    get_domain("lengths.py:Units")
    _forget()
    assert code.counted("lengths") == ["judging_units", "lengths"]


def test_its_own_module_is_what_a_stage_chooses(write: Write) -> None:
    config = resolve("tiny", fields={"domain": {"name": "lengths.py:Units"}})
    assert "lengths" in chosen_modules(score.STAGE, config, domain_of(score.STAGE, config))
