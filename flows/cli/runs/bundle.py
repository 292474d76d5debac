"""`genenv bundle` and `genenv replay`: a run in a file, and the same run computed again from it."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import Json, Overrides, Root, check_output, check_run, existing, not_written
from flows.shown.json_text import json_text
from genenv_core.errors import ConfigError, GenenvError, IntegrityError, ReplayError

if TYPE_CHECKING:
    from genenv_core.bundle.contents import Contents
    from genenv_core.config.schema import RunConfig

SUFFIX = ".genenv.zip"


def bundle(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run of the root.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"A new file (default: RUN{SUFFIX}).")
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Write what proves a run into one file: configuration, code, versions, keys, digests."""
    from genenv_core.bundle.contents import write
    from genenv_core.canonical import sha256

    store = existing(root)
    check_run(store, run)
    path = output or Path(f"{run}{SUFFIX}")
    _check_new(path)
    contents = _gathered(run, store)
    data = write(contents)
    _create(path, data)
    facts = contents.facts
    told = {**_told(contents), "bytes": len(data), "sha256": sha256(data)}
    if as_json:
        print(json_text({"bundle": str(path), **told}))
        return
    print(f"{path}: {len(data) / 1e6:.1f} MB, sha256 {told['sha256']}")
    print(f"  {_said(contents)}")
    if contents.last != (facts.epochs, "publish"):
        print(f"  the run is not finished: it was to have {facts.epochs} epochs")
    print(f"replay it, here or elsewhere: genenv replay {path}")


def replay(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A file of genenv bundle.")],
    root: Annotated[
        str | None,
        typer.Option(help="A new folder for the replay (default: beside the bundle, -replay)."),
    ] = None,
    set_: Overrides = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check the bundle and this installation.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--unpack", metavar="DIR", help="Only write the bundle's files to a folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute a bundle's run again and compare each stage; exit status 1 if one differs."""
    from flows.running.signals import heed_ends

    if folder is not None and (root or set_ or check or as_json):
        raise ConfigError("--unpack writes files and computes nothing: give it alone")
    if folder is None and not check:  # so it plays stages
        heed_ends()
    data = _read(bundle)
    contents = _opened(bundle, data)
    if folder is not None:
        _unpack(bundle, data, contents, folder)
        return
    _replay(bundle, data, contents, root, set_ or (), check=check, as_json=as_json)


def _replay(
    path: Path,
    data: bytes,
    contents: Contents,
    root: str | None,
    overrides: Any,
    *,
    check: bool,
    as_json: bool,
) -> None:
    """Check this installation, carry the run out, and tell whether it is equal."""
    from flows.running.environment import check_home, prepare
    from genenv_core.storage.store.opening import home_of

    place = root or str(
        path.with_name(f"{path.name.removesuffix('.zip').removesuffix('.genenv')}-replay")
    )
    check_home(home_of(place))
    prepare()
    from flows import replaying

    config = replaying.replayable(contents, str(path), place, overrides)

    here = _installed(contents, config)
    if not as_json:
        print(f"{path}: whole")
        print(f"  {_said(contents)}")
        _tell_here(config, here)
    replaying.check_keys(contents, config, here)
    replaying.check_given(contents, config)
    told = {"bundle": str(path), **_told(contents), "differs_here": _differs(here)}
    if check:
        print(json_text(told) if as_json else "this installation can replay it")
        return
    from flows.cli.runs.run import carry_out
    from genenv_core.canonical import sha256
    from genenv_core.config.run_options import RunOptions
    from genenv_core.storage.store.opening import open_once
    from tasks.stage.progress import listening

    store = open_once(place)
    replaying.open_root(store, sha256(data), contents)
    if not as_json:
        print(f"replaying it in {place}", flush=True)
    compared = replaying.ReplayComparison(contents, store, here, config)
    options = RunOptions(until=contents.facts.until)
    told |= {"root": place}
    try:
        with listening(compared):
            carry_out(config, options, quiet=as_json)
        compared.check_all()
    except GenenvError as error:
        if not compared.unequal and not isinstance(error, ReplayError):
            raise
        if as_json:
            first = compared.first
            where = {"epoch": first[0], "stage": first[1]} if first else None
            differences = compared.unequal[first] if first else []
            print(json_text({**told, "equal": False, "first": where, "differs": differences}))
        raise ReplayError(compared.said() or str(error)) from error
    if as_json:
        print(json_text({**told, "equal": True, "reused": len(compared.reused)}))
        return
    print(
        f"equal to the bit: {len(contents.stages)} stages, {contents.tables} tables, "
        f"{contents.checkpoints} checkpoints"
    )
    if compared.reused:
        print(f"{len(compared.reused)} of the stages are of earlier calls of this replay")


def _gathered(run: str, store: Any) -> Contents:
    """Return the bundle of a run of a root."""
    from flows.running.environment import prepare
    from genenv_core.config.load import as_recorded
    from genenv_core.storage.records.runs import RunLog

    prepare()
    recorded = RunLog(store, run).info().config
    config = as_recorded(recorded, run, {"root": store.uri, "run_id": run})
    from flows.bundling import gather

    return gather(config, store)


def _installed(contents: Contents, config: RunConfig) -> Any:
    """Return how this installation differs; a domain that is not here is named with its source."""
    from flows import replaying

    try:
        return replaying.installed_here(contents, config)
    except ConfigError as error:
        own = sorted(name for name in contents.files if name.startswith("plugin/"))
        if not own:
            raise
        raise ConfigError(
            f"{error}; the bundle holds its source ({', '.join(own[:3])}), which is never run from "
            "there: `genenv replay BUNDLE --unpack DIR` writes it, and you put it in its place"
        ) from error


def _unpack(path: Path, data: bytes, contents: Contents, folder: Path) -> None:
    from flows.replaying import unpack
    from genenv_core.bundle.sealed_zip import unpack as members

    unpack(members(data), folder)
    print(f"{folder}: every file of the bundle. To replay it with what made it:")
    for line in _steps(path, contents, folder):
        print(f"  {line}")
    commit = contents.facts.commit
    if commit and not commit.endswith("-dirty"):
        print(f"or check out commit {commit} of genenv and say `make install`.")
    print("Installing runs its code: do so only if you trust who made the bundle.")


def _steps(path: Path, contents: Contents, folder: Path) -> list[str]:
    """Return the commands that make a fresh environment of an unpacked bundle."""
    home, file = shlex.quote(str(folder)), shlex.quote(str(path))
    # A bundle may come from anybody, and people copy these lines into a shell.
    version = re.match(r"3\.\d{1,2}(?=\.\d)", contents.machine.get("python", ""))
    has_locks = "locks/requirements.lock" in contents.files
    cuda = "+cpu" not in contents.facts.packages.get("torch", "")
    torch = f"{home}/locks/torch-{'cuda' if cuda else 'cpu'}.lock"
    index = "" if cuda else " --extra-index-url https://download.pytorch.org/whl/cpu"
    pip = f"{home}/venv/bin/pip install --no-deps"
    locks = (
        [
            f"{pip} --require-hashes -r {home}/locks/requirements.lock",
            f"{pip} --require-hashes -r {torch}{index}",
        ]
        if has_locks
        else [f"{pip} -r {home}/locks/installed.txt{index}"]
    )
    run = f"PYTHONPATH={home}/code {home}/venv/bin/python -m flows.cli.app"
    python = f"python{version[0] if version else 3}"
    return [f"{python} -m venv {home}/venv", *locks, f"{run} replay {file}"]


def _read(path: Path) -> bytes:
    """Return the bytes of a bundle's file; raises ConfigError for one that cannot be read."""
    from genenv_core.bundle.sealed_zip import LARGEST
    from genenv_core.named_files import unreadable

    if why := unreadable(path):
        raise ConfigError(f"{path}: {why}")
    try:
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def _opened(path: Path, data: bytes) -> Contents:
    from genenv_core.bundle.contents import read

    try:
        return read(data)
    except IntegrityError as error:
        raise IntegrityError(
            f"{path}: {error}; genenv used nothing of it: get the file again from its author"
        ) from error


def _check_new(path: Path) -> None:
    """Raise ConfigError where a bundle cannot be written, before it is made."""
    if os.path.lexists(path):
        raise ConfigError(f"-o {path}: is there already: choose another name or remove it")
    check_output("-o", path)


def _create(path: Path, data: bytes) -> None:
    from genenv_core.storage.files import create

    try:
        create(path, data)
    except FileExistsError as error:
        raise ConfigError(f"-o {path}: is there already: choose another name") from error
    except OSError as error:
        raise not_written("-o", path, error) from error


def _told(contents: Contents) -> dict[str, Any]:
    """Return what is in a bundle, for JSON."""
    epoch, stage = contents.last
    return {
        "run_id": contents.facts.run_id,
        "genenv": contents.facts.version,
        "commit": contents.facts.commit,
        "until": {"stage": stage, "epoch": epoch},
        "stages": len(contents.stages),
        "tables": contents.tables,
        "checkpoints": contents.checkpoints,
    }


def _said(contents: Contents) -> str:
    """Return what is in a bundle, in a line."""
    epoch, stage = contents.last
    facts = contents.facts
    commit = f", commit {facts.commit[:12]}{'-dirty' * facts.commit.endswith('-dirty')}"
    return (
        f"run {facts.run_id}: {len(contents.stages)} stages up to {stage} of epoch {epoch}, "
        f"{contents.tables} tables, {contents.checkpoints} checkpoints; "
        f"genenv {facts.version}{commit if facts.commit else ''}"
    )


def _tell_here(config: RunConfig, here: Any) -> None:
    """Print how this installation differs, a line a kind."""
    from flows.replaying import promised
    from genenv_core.bundle.comparing import listed

    if not promised(config):
        print("  bits are not promised: the run used a GPU, vLLM, an endpoint or several threads")
    for lines, said in (
        (here.bits, "another processor, so bits may differ"),
        (here.versions, "other versions"),
        (here.code, "other code"),
        (here.wording, "other comments or texts, which no key counts"),
    ):
        if lines:
            print(f"  {said}: {listed(lines)}")
    if not (here.bits or here.versions or here.code):
        print("  processor, versions and code here are those of the bundle")


def _differs(here: Any) -> dict[str, list[str]]:
    """Return how this installation differs, for JSON."""
    return {
        "processor": list(here.bits),
        "versions": list(here.versions),
        "code": list(here.code),
    }
