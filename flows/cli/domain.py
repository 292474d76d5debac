"""`genenv domain`: a domain of one's own, begun and checked."""

from __future__ import annotations

import os
import re
import sys
from importlib.resources import files
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.options import Overrides, config_of_domain
from genenv_core.domains.registry import get_domain, known_domains
from genenv_core.domains.tool_calls import as_read
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.named_files import why_not_written

TEMPLATES = {"domain.py.txt": "countdown", "stateful.py.txt": "diary"}
"""Name of the domain in each template, which `genenv domain new` replaces."""

app = typer.Typer(help="Begin a domain of your own, and check it.", no_args_is_help=True)


@app.command("check")
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A domain as in domain.name: a name, my_domain.py:Units or package.module:Units.",
        ),
    ],
    set_: Overrides = None,
    base: Annotated[int, typer.Option(help="Base tasks to draw.", min=1, max=100_000)] = 100,
    heldout: Annotated[int, typer.Option(help="Held-out tasks to draw.", min=1, max=100_000)] = 50,
) -> None:
    """Play a domain in seconds, without models; say what is wrong, and what to do."""
    from genenv_core.play.checking.domain_checks import check_domain, context_of

    config = config_of_domain(name, set_)
    faults = check_domain(name, config.domain.options, base=base, heldout=heldout)
    if faults:
        for fault in faults:
            typer.echo(f"{fault.method}: {fault.found}\n  -> {fault.remedy}")
        count = len(faults)
        raise GenenvError(f"{name}: {count} fault{'s' if count > 1 else ''}, named above")
    domain = get_domain(name, config.domain.options)
    draft = domain.base_tasks(0, 1)[0]
    typer.echo(
        f"{domain.name}, version {domain.version}: no fault in {base} base and {heldout} held-out "
        "tasks, for example\n"
    )
    _show("pi_env reads", domain.env_messages(context_of(draft, 0.5)))
    typer.echo(f"pi_env may write\n  {draft.program or '(base tasks have no program)'}\n")
    _show("pi_agent reads", domain.agent_messages(draft))
    right = as_read(draft.ground_truth).replace("\n", "\n  ")
    typer.echo(f"right is\n  {right or '(only the environment knows)'}")


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the domain, such as units.")],
    into: Annotated[
        Path, typer.Option(help="The folder that gets the two files.", metavar="DIR")
    ] = Path(),
    stateful: Annotated[
        bool, typer.Option(help="Write one whose tools change a state, which it judges.")
    ] = False,
) -> None:
    """Write a small domain that works, and its test, as a beginning."""
    if not re.fullmatch("[a-z][a-z0-9_]{0,39}", name):
        raise ConfigError(f"NAME {name!r}: write small letters, digits and _, a letter first")
    template = "stateful.py.txt" if stateful else "domain.py.txt"
    example = TEMPLATES[template]
    made = {into / f"{name}.py": template, into / f"test_{name}.py": f"test_{template}"}
    there = next((path for path in made if os.path.lexists(path)), None)  # or cannot be
    if there is not None:
        raise ConfigError(f"{there} is there already: choose another name or another --into")
    title = "".join(part.capitalize() for part in name.split("_"))
    texts = {
        path: files("flows.cli").joinpath("templates", source).read_text(encoding="utf-8")
        for path, source in made.items()
    }
    own = re.sub(example, "", "".join(texts.values()), flags=re.IGNORECASE)
    if taken := _taken(name, title, own):
        raise ConfigError(f"NAME {name!r} {taken}: choose another name, such as my_{name}")
    try:
        into.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            text = text.replace(example.capitalize(), title).replace(example, name)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        why = why_not_written(into, error, folder=True)
        raise ConfigError(f"--into {into}: {why}") from error
    place = next(iter(made))
    typer.echo(
        f"wrote {' and '.join(map(str, made))}; next:\n"
        f"  genenv domain check {place}:{title}\n"
        f"  genenv run tiny --set domain.name={place}:{title}"
    )


def _taken(name: str, title: str, own: str) -> str:
    """Return what else has the name of a domain's module or class; '' if nothing.

    `own` is the code of the domain, without its name.
    """
    if iskeyword(name) or iskeyword(title):
        return "is a word of Python's own language"
    if name in known_domains():
        return "is a domain that is there already"
    if name in sys.stdlib_module_names:
        return f"is a module of Python's own library, which {name}.py would never replace"
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is not None:
        place = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
        return f"is what Python imports from {place}, in place of {name}.py"
    if re.search(rf"\b({name}|{title})\b", own):
        return "is a name that the domain's own code uses"
    return ""


def _show(title: str, messages: list[Any]) -> None:
    typer.echo(title)
    for message in messages:
        lines = message["content"].splitlines() or [""]
        typer.echo("\n".join(f"  [{message['role']}] {line}" for line in lines))
    typer.echo("")
