"""Says what is at fault where a plug-in fails: the machine, its options, or its own code."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from pydantic import ValidationError

from genenv_core.errors import ConfigError, GenenvError, described
from genenv_core.machine.shortage import blame_machine
from genenv_core.machine.wrong_values import refusal


@contextmanager
def failures_named(field: str, name: str, point: EntryPoint) -> Generator[None]:
    """Raise ConfigError, with the name, for whatever foreign code raises."""
    try:
        yield
    except GenenvError:
        raise
    except ValidationError as error:
        raise ConfigError(_wrong_options(error, field, name, point)) from error
    except (Exception, SystemExit) as error:  # a module may end the process where it is imported
        blame_machine(error, f"{field} {name!r} was not loaded")
        module = sys.modules.get(point.module)
        if module is not None and point.attr and not hasattr(module, point.attr):
            raise ConfigError(
                f"{field} {name!r}: {point.module} has no {point.attr!r}; its own classes are "
                f"{', '.join(_classes(module)) or 'none'}"
            ) from error
        raise ConfigError(f"{field} {name!r}: {_failure(error, point)}") from error


def _failure(error: BaseException, point: EntryPoint) -> str:
    """Return how the code of a plug-in failed, on which line of which file, and what to do."""
    if isinstance(error, ModuleNotFoundError):
        return (
            f"Python finds no module {error.name!r} for the plug-in {point.value}: install it, or "
            f"change from {Path.cwd()} into the folder that has it"
        )
    said = described(error)
    own = point.module.replace(".", "/") + ".py"
    lines = [
        f" ({Path(frame.filename).name}, line {frame.lineno})"
        for frame in extract_tb(error.__traceback__)
        if frame.filename.endswith(own)
    ]
    # A SyntaxError brings its line, and its frames are Python's own.
    return f"the plug-in {point.value} failed with {said}{(lines or [''])[-1]}: mend its code"


def _wrong_options(error: ValidationError, field: str, name: str, point: EntryPoint) -> str:
    """Return what is wrong with the options of a class, whose own model refused them."""
    model = getattr(sys.modules.get(point.module), error.title, None)
    known = getattr(model, "model_fields", None)
    takes = ": " + ", ".join(known) if known else ""
    return f"{wrong_options(error, field.partition('.')[0])} (options of {name}{takes})"


def wrong_options(error: ValidationError, section: str) -> str:
    """Return the first five options of a section that a model refused, with value and reason."""
    said: list[str] = []
    for item in error.errors()[:5]:
        place = ".".join((f"{section}.options", *map(str, item["loc"])))
        if item["type"] == "extra_forbidden":
            said.append(f"{place} is no option")
        elif item["type"] == "missing":
            said.append(f"{place} is missing: set it")
        else:
            said.append(f"{place}: {refusal(item)}")
    return "; ".join(said)


def _classes(module: ModuleType) -> list[str]:
    """Return the classes that a module defines, sorted."""
    found = vars(module).items()
    return sorted(
        name for name, one in found if isinstance(one, type) and one.__module__ == module.__name__
    )
