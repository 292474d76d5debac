"""Entry point of `genenv`: options, and errors as one line with the right exit status.

Light on purpose: what needs prefect or torch is imported inside the commands that use it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from flows.cli import domain, inspect, upkeep
from flows.cli.data import certify, download, exchange, sql
from flows.cli.data import eval as benchmarks
from flows.cli.machines import up, view
from flows.cli.runs import bundle, compare, diff, labels, run, settings, trace, what_if
from flows.cli.streams import OutputLost, flushed, open_streams
from flows.cli.usage import usage_line
from flows.running.environment import check_working_folder, past_proxies, quiet
from flows.running.signals import Terminated, heeds_ends
from genenv_core import __version__
from genenv_core.errors import GenenvError, described
from genenv_core.hiding import visible
from genenv_core.importing import collect_seldom
from genenv_core.machine.shortage import shortage

INTERRUPTED = 130
WRONG_USAGE = 2
ENDED_EARLY = (INTERRUPTED, 128 + signal.SIGTERM, 128 + signal.SIGHUP)

app = typer.Typer(
    name="genenv",
    help="Train an LLM agent against a simulator that co-evolves with it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("resume")(run.resume)
app.command("plan")(run.plan)
app.command("compare")(compare.compare)
app.command("status")(inspect.status)
app.command("runs")(labels.runs)
app.command("tag")(labels.tag)
app.command("diff")(diff.diff)
app.command("what-if")(what_if.what_if)
app.command("sql")(sql.sql)
app.command("report")(inspect.report)
app.command("trace")(trace.trace)
app.command("export")(exchange.export)
app.command("import")(exchange.import_)
app.command("eval")(benchmarks.evaluate)
app.command("certify")(certify.certify)
app.command("bundle")(bundle.bundle)
app.command("replay")(bundle.replay)
app.command("copy")(upkeep.copy)
app.command("verify")(upkeep.verify)
app.command("gc")(upkeep.gc)
app.command("compact")(upkeep.compact)
app.command("work-pool")(up.work_pool)
app.command("up")(up.up)
app.command("deploy")(up.deploy)
app.command("view")(view.view)
app.command("doctor")(inspect.doctor)
app.add_typer(download.app, name="data")
app.add_typer(settings.app, name="config")
app.add_typer(domain.app, name="domain")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"genenv {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    endpoint_url: Annotated[
        str | None,
        typer.Option(
            help="Address of the store of s3:// roots, unless AWS; AWS_ENDPOINT_URL does the same.",
            metavar="URL",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Train an LLM agent against a simulator that co-evolves with it."""
    if debug:
        os.environ["GENENV_DEBUG"] = "1"
    if endpoint_url:
        os.environ["AWS_ENDPOINT_URL_S3"] = endpoint_url  # child processes inherit it
    check_working_folder()


def main() -> None:
    """Run the command line and exit."""
    collect_seldom()
    # Outside of its standalone mode Typer hands an exit status back as the result.
    plainly(lambda: app(standalone_mode=False))


def plainly(work: Callable[[], object]) -> NoReturn:
    """Do some work and exit: 0 done, 1 it failed, 2 wrong usage or configuration.

    An integer that the work returns is the status. An error is one line; below that of a SQL
    question stands the place in it.
    """
    open_streams()
    quiet()
    past_proxies()
    try:
        result = work()
        status = result if isinstance(result, int) else 0
        if status == INTERRUPTED:
            raise KeyboardInterrupt
    except OutputLost as error:
        status = error.exit_status
    except GenenvError as error:
        status = _say(error, error.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        _print(interrupted())
        status = INTERRUPTED
    except Terminated as error:
        place = str(error) or "the last finished stage"
        _print(f"stopped by {error.number.name}: the same command continues from {place}")
        status = 128 + error.number
    except Exception as error:
        show = getattr(error, "show", None)  # Typer's help prints itself
        if line := usage_line(error):
            _print(line)
            status = WRONG_USAGE
        elif show is None:
            status = _say(error, 1)
        else:
            show()
            status = getattr(error, "exit_code", WRONG_USAGE)
    if lost := flushed():
        status = lost.exit_status
        if not lost.quiet:
            _print(str(lost))
            sys.stderr.flush()
    # An interrupted stage that goes on must not delay the exit. Daemon threads are no exception:
    # at its end Python waits for the threads of thread pools as well.
    if status in ENDED_EARLY or any(not thread.daemon for thread in threading.enumerate()[1:]):
        os._exit(status)
    sys.exit(status)


def interrupted() -> str:
    """Return what a command says after Ctrl-C; one that plays no stages continues nothing."""
    on = ": the same command continues from the last finished stage" if heeds_ends() else ""
    return f"interrupted{on}"


def _say(error: Exception, status: int) -> int:
    if os.environ.get("GENENV_DEBUG"):
        traceback.print_exc()
    text = str(error) or type(error).__name__
    if not isinstance(error, GenenvError):
        what = shortage(error)
        text = f"{what} ({described(error, 300)})" if what else described(error, 2000)
        text = f"{text} (genenv --debug ... shows where)"
    _print(text)
    return status


def _print(text: str) -> None:
    text = visible(text)  # it may repeat what is in a file of somebody else's
    console = Console(stderr=True, highlight=False)
    console.print(f"[bold red]genenv:[/] {text.replace('[', chr(92) + '[')}", soft_wrap=True)


if __name__ == "__main__":
    main()
