"""Code versions.

Invariants: comments, docstrings, blanks and positions do not change a digest, any code does; the
version of a module covers what it imports, directly and indirectly, anywhere in a function, and
nothing else; every version of Python gives the same digest; excluded modules are left out unless
they are named; nothing is imported to compute it; a plug-in counts with all of its modules, as a
single file or as a package.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from genenv_core.storage.records import code
from genenv_core.storage.records.code import code_version, imported_modules, source_digest
from tests.mutations import mutation
from tests.waiting import BOUND_S

REPOSITORY = Path(__file__).parents[3]
SOURCE = '''
"""Module."""
import math

class Box:
    """A box."""

    width = 3
    """How wide."""

    def area(self, depth):
        """Return the area."""
        return self.width * depth
'''


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ('"""Module."""', '"""Another text."""', False),
        ('"""Module."""', "", False),
        ('    """A box."""', '    """A crate."""\n    # with a comment', False),
        ('    """How wide."""', "", False),
        ('        """Return the area."""\n', "", False),
        ("import math", "\n\n\nimport math  # numbers", False),
        ("self.width * depth", "(self.width\n            * depth)", False),
        ("width * depth", "width + depth", True),
        ("width = 3", "width = 3.0", True),
        ("width = 3", "width = 4", True),
        ("import math", "import cmath", True),
        ("def area(self, depth)", "def area(self, depth=1)", True),
        ("class Box", "class Crate", True),
        ("        return self", "        'text'\n        print('text')\n        return self", True),
    ],
)
def test_code_counts_and_words_and_positions_do_not(old: str, new: str, counts: bool) -> None:
    assert old in SOURCE
    assert (source_digest(SOURCE.replace(old, new)) != source_digest(SOURCE)) is counts


def test_a_text_that_is_used_is_no_docstring() -> None:
    assert source_digest("x = 'a'") != source_digest("x = 'b'")
    assert source_digest("def f():\n    return 'a'") != source_digest("def f():\n    return 'b'")


VARIED = """
@wrap
def f(a, /, *b: int, c=None, **d): return None
class Empty: pass
async def g() -> str: return f"{x!r:>{width}} and {y=}"
call(); lambda: (); {**a, 'b': None}; x[:]; y: int; print(*[], end=u'')
try: ...
except* OSError: raise
match z:
    case {"k": [_, *rest], **more} | None: pass
"""


def test_every_python_gives_the_same_digest() -> None:
    # From Python 3.11.7, 3.12.1 and 3.13.0. Another number computes every stored stage anew.
    assert source_digest(VARIED).startswith("968c2f4ea3c0a49b")
    script = f"from genenv_core.storage.records.code import *; print(source_digest({VARIED!r}))"
    others = Path(sys.base_prefix).parent.glob("3.1[2-9]*/bin/python")  # pyenv's, where it is
    for python in others:
        done = subprocess.run(
            [python, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == source_digest(VARIED), python


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a package `toy`: top -> middle -> deep, top -> late (in a function); alone."""
    files = {
        "__init__.py": "",
        "top.py": "from toy.middle import go\n\ndef later():\n    import toy.late\n",
        "middle.py": "import os\nimport toy.sub.deep as deep\n\ndef go():\n    return deep.VALUE\n",
        "late.py": "raise RuntimeError('importing this is an error')\n",
        "alone.py": "VALUE = 1\n",
        "sub/__init__.py": "raise RuntimeError('importing this is an error')\n",
        "sub/deep.py": "from toy import top\n\nVALUE = 1\n",  # a circle is no trouble
    }
    root = tmp_path / "toy"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(code, "PROJECT", ("toy",))
    yield root
    forget()


def forget() -> None:
    for cached in (code_version, code._read, code._source):
        cached.cache_clear()


def version_of(*modules: str) -> str:
    forget()
    return code_version(*modules)


@mutation(
    "imports of imports are in no code version", "genenv_core/storage/records/code.py",
    "waiting += [name for name in imported_modules(module) if not is_apart(name)]", "pass",
)  # fmt: skip
@pytest.mark.parametrize("changed", ["top.py", "middle.py", "sub/deep.py", "late.py"])
def test_a_change_in_what_is_imported_counts(project: Path, changed: str) -> None:
    before = version_of("toy.top")
    path = project / changed
    path.write_text(path.read_text(encoding="utf-8") + "\n# a comment\n", encoding="utf-8")
    assert version_of("toy.top") == before
    path.write_text(path.read_text(encoding="utf-8") + "\nMORE = 1\n", encoding="utf-8")
    assert version_of("toy.top") != before


def test_a_change_elsewhere_does_not_count(project: Path) -> None:
    before = version_of("toy.top")
    (project / "alone.py").write_text("VALUE = 2\n", encoding="utf-8")
    assert version_of("toy.top") == before
    both = version_of("toy.top", "toy.alone")
    assert both != before and both == version_of("toy.alone", "toy.top", "toy.alone")


def test_modules_left_out_do_not_count(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "APART", {"toy.sub": "it decides nothing"})
    before, named = version_of("toy.top"), version_of("toy.top", "toy.sub.deep")
    (project / "sub" / "deep.py").write_text("VALUE = 9\n", encoding="utf-8")
    assert version_of("toy.top") == before
    assert version_of("toy.top", "toy.sub.deep") != named


def test_imports_are_found_in_both_spellings_and_inside_functions(project: Path) -> None:
    forget()
    assert imported_modules("toy.top") == ("toy.late", "toy.middle")
    assert imported_modules("toy.middle") == ("toy.sub.deep",)
    assert imported_modules("toy.sub.deep") == ("toy", "toy.top")
    assert imported_modules("toy.nowhere") == ()


def moved(project: Path, old: str, new: str) -> None:
    """Move a module or a package, and spell its name anew wherever the project's code has it."""
    source, target = (project.parent.joinpath(*name.split(".")) for name in (old, new))
    if not source.is_dir():
        source, target = source.with_suffix(".py"), target.with_suffix(".py")
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    (package, name), (other, another) = old.rsplit(".", 1), new.rsplit(".", 1)
    for path in project.rglob("*.py"):
        text = path.read_text(encoding="utf-8").replace(old, new)
        if f"from {package} import {name}" in text:
            text = text.replace(f"from {package} import {name}", f"from {other} import {another}")
            text = text.replace(f"{name}.", f"{another}.")
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def wired(project: Path) -> Path:
    """Add `toy.door`, which names modules by alias, from a package, in a text and in a function."""
    text = (
        "import os\n\nfrom toy import middle\nfrom toy.late import LATE\n"
        "from toy.sub.deep import VALUE\n\n"
        'TABLE = {"deep": "toy.sub.deep:VALUE", "alone": "toy.alone"}\n\n\n'
        "def go():\n    from toy.top import later\n\n    return middle.go(), later, VALUE, LATE\n"
    )
    (project / "door.py").write_text(text, encoding="utf-8")
    return project


@mutation(
    "a module's own name is in its code version", "genenv_core/storage/records/module_form.py",
    "            node.id = number(taking.bound[node.id])", "            pass",
)  # fmt: skip
@mutation(
    "a table's spelling of a module is in the code version",
    "genenv_core/storage/records/module_form.py",
    "if spelled and is_own(spelled[1]):", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("toy.sub.deep", "toy.deep"),
        ("toy.sub.deep", "toy.aaa.bbb.deepest"),
        ("toy.middle", "toy.sub.centre"),
        ("toy.late", "toy.a_first_import"),
        ("toy.alone", "toy.sub.alone"),
        ("toy.sub", "toy.below"),
        ("toy.top", "toy.sub.top"),
    ],
)
def test_a_module_or_package_may_move(wired: Path, old: str, new: str) -> None:
    (wired / "sub" / "__init__.py").write_text('"""A package."""\n', encoding="utf-8")
    before = version_of("toy.door")
    moved(wired, old, new)
    assert version_of("toy.door") == before


@mutation(
    "what an import leads to is in no code version", "genenv_core/storage/records/code.py",
    "found[target].digest if target in found", "'there' if target in found",
)  # fmt: skip
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import middle\n", "import other as middle\n"),
        ("from toy.sub.deep import VALUE", "from toy.other import VALUE"),
        ("toy.sub.deep:VALUE", "toy.other:VALUE"),
        ("import VALUE", "import MORE as VALUE"),
        ("middle.go()", "other.go()"),
    ],
)
def test_the_same_code_over_other_modules_counts(wired: Path, old: str, new: str) -> None:
    """Both modules count before and after: only what is tied to which changes."""
    (wired / "other.py").write_text("VALUE = 2\n", encoding="utf-8")
    door = wired / "door.py"
    text = door.read_text(encoding="utf-8") + "\n\nfrom toy import other\n"
    door.write_text(text, encoding="utf-8")
    before, closure = version_of("toy.door"), code.counted("toy.door")
    assert old in text
    door.write_text(text.replace(old, new), encoding="utf-8")
    assert version_of("toy.door") != before and code.counted("toy.door") == closure


def test_a_plug_in_of_one_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lonely_plugin.py"
    path.write_text("VALUE = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = version_of("lonely_plugin")
    path.write_text("VALUE = 2\n", encoding="utf-8")
    assert version_of("lonely_plugin") != before
    forget()


def test_all_modules_of_a_plug_in_count(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "PROJECT", ("genenv_core",))
    before = version_of("toy.top")
    (project / "sub" / "deep.py").write_text("VALUE = 9\n", encoding="utf-8")
    assert version_of("toy.top") != before


def test_the_real_project() -> None:
    assert "genenv_core.algorithm.reward" in code.counted("tasks.score")
    assert version_of("tasks.filter") == code_version("tasks.filter")
    assert len(code_version("tasks.filter")) == 16
    assert code_version("tasks.filter") != code_version("tasks.score")


def test_nothing_is_imported_to_compute_a_version() -> None:
    script = (
        "import sys; from genenv_core.storage.records.code import code_version;"
        "code_version('tasks.grpo_update', 'genenv_core.training.grpo.trainer');"
        "bad = {'torch', 'trl', 'transformers', 'prefect', 'tasks', 'pandas', 'polars'};"
        "print(sorted(bad & set(sys.modules)))"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=BOUND_S
    ).stdout
    assert output.strip() == "[]"


def test_threads_may_digest_at_the_same_time() -> None:
    # A collection inside the parser lets another thread in: CPython 3.11 then loses count.
    source = Path(code.__file__).read_text(encoding="utf-8") * 3
    expected = source_digest(source)

    def yielding(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    threshold = gc.get_threshold()
    gc.callbacks.append(yielding)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(source_digest, [source] * 16))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(yielding)
    assert found == [expected] * 16
