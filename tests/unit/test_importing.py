"""Imports: of large libraries, and files of people's own that have the names of genenv's packages.

Invariants: a file or a folder in the working folder is named with what to do, before anything of
genenv fails; genenv's own packages, and a folder that is no package, are no fault; who uses only
`genenv_core` may have a `tasks.py`. No garbage is collected while large libraries are imported, and
it is again afterwards, whether there is such a module or not. Processes of genenv's own look for
garbage seldom, and not at their end.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from genenv_core.importing import SELDOM, check_ours, load
from tests.mutations import mutation
from tests.waiting import BOUND_S

REPOSITORY = Path(__file__).parents[2]


@mutation(
    "whatever has the name of genenv's package is taken for it", "genenv_core/importing.py",
    "found.parents[1] != HOME", "False",
)  # fmt: skip
@pytest.mark.parametrize("name", ["schemas.py", "tasks.py", "schemas/__init__.py"])
def test_what_has_the_name_of_a_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    package = name.partition("/")[0].removesuffix(".py")
    check_ours("schemas", "tasks")
    monkeypatch.delitem(sys.modules, package, raising=False)
    check_ours("schemas", "tasks")  # where it is not imported yet
    (tmp_path / package).mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    check_ours("schemas", "tasks")  # a folder of files is no package
    (tmp_path / package).rmdir()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(ImportError) as caught:
        check_ours("schemas", "tasks")
    found = tmp_path / name.removesuffix("/__init__.py")
    assert f"its own package {package!r}, and Python finds {found} under this name" in str(
        caught.value
    )
    assert "rename that" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "imported", "told"),
    [
        ("schemas.py", "genenv_core", "ImportError: genenv needs its own package 'schemas'"),
        ("tasks.py", "flows", "ImportError: genenv needs its own package 'tasks'"),
        ("tasks.py", "genenv_core", ""),
    ],
)
def test_a_notebook_beside_such_a_file(tmp_path: Path, name: str, imported: str, told: str) -> None:
    (tmp_path / name).touch()
    done = subprocess.run(
        [sys.executable, "-c", f"import {imported}"],
        cwd=tmp_path, env={"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr.strip().rpartition("\n")[2].startswith(told)
    assert bool(told) == bool(done.returncode)


@mutation(
    "garbage is collected while libraries are imported", "genenv_core/importing.py",
    "    gc.disable()\n", "",
)  # fmt: skip
@mutation(
    "garbage is never collected after an import", "genenv_core/importing.py",
    "        if collecting:\n", "        if not collecting:\n",
)  # fmt: skip
def test_no_garbage_is_collected_during_a_large_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "genenv_large.py").write_text("import gc\ncollecting = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert gc.isenabled()
    assert not load("genenv_large").collecting
    assert gc.isenabled()
    with pytest.raises(ImportError):
        load("genenv_larger")
    assert gc.isenabled()


SAYS_AT_ITS_END = """
import atexit, gc, sys
from {module} import main
atexit.register(lambda: print("kept:", gc.get_freeze_count() > 0, gc.get_threshold()[0]))
sys.argv[1:] = [{argument!r}]
{before}
main()
"""


@mutation(
    "a process looks for garbage at its end", "genenv_core/importing.py",
    "    atexit.register(gc.freeze)\n", "",
)  # fmt: skip
@mutation(
    "a process looks for garbage as often as Python does", "genenv_core/importing.py",
    "    gc.set_threshold(*SELDOM)\n", "",
)  # fmt: skip
@mutation(
    "a command looks for garbage as often as Python does", "flows/cli/app.py",
    "    collect_seldom()\n", "",
)  # fmt: skip
@mutation(
    "the Prefect server looks for garbage as often as Python does",
    "flows/running/server_program.py", "    collect_seldom()\n", "",
)  # fmt: skip
@pytest.mark.parametrize(
    ("module", "argument", "before"),
    [
        ("flows.cli.app", "--version", ""),
        ("flows.running.server_program", "0", "sys.modules[main.__module__]._serve = print"),
    ],
    ids=["command", "server"],
)
def test_a_process_of_our_own_looks_for_garbage_seldom(
    module: str, argument: str, before: str
) -> None:
    code = SAYS_AT_ITS_END.format(module=module, argument=argument, before=before)
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, timeout=BOUND_S, check=False,
    )  # fmt: skip
    assert f"kept: True {SELDOM[0]}" in done.stdout, done.stderr
