"""The end of a command's work.

Invariants: what is beside the end is finished first, and its error is raised; outside of the block
there is no end; a block in a block ends by its own end; a limit lets stored stages pass, and ends
the work before the first that would be computed; what a cancelled run leaves is Cancelled.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from prefect.exceptions import CancelledRun

from genenv_core.config.sections.limits import LimitsConfig
from genenv_core.config.until import Until
from genenv_core.errors import StageError, Stopped
from genenv_core.spending.spent import Reached, Spent, reached
from tasks.stage.progress import Cancelled
from tasks.stage.stopping import Waitable, current_end, or_cancelled, stopping, to_the_end
from tests.mutations import mutation

STOPPING = "tasks/stage/stopping.py"

END = Until(stage="grpo_update", epoch=1)


class Stage(Waitable):
    """A stage that is waited for once."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.waited = error, 0

    def result(self) -> Any:
        self.waited += 1
        if self.error:
            raise self.error


def work(beside: Stage) -> str:
    end = current_end()
    assert end is not None
    end.check("grpo_update", 1, lambda: False)
    end.started(beside)
    end.check("rwr_update", 1, lambda: True)
    return "never"


@mutation(
    "the end leaves a stage at work alone", STOPPING, "            end.wait()", "            pass"
)
def test_what_is_at_work_is_waited_for() -> None:
    beside = Stage()
    with stopping(END):
        assert to_the_end(lambda: work(beside)) is None
    assert beside.waited == 1 and current_end() is None


def test_its_error_is_not_lost() -> None:
    with stopping(END), pytest.raises(ValueError, match="no memory"):
        to_the_end(lambda: work(Stage(ValueError("no memory"))))


class Spending:
    """A budget with a limit that is reached."""

    def __init__(self, spent: float) -> None:
        self.spent = spent

    def reached(self, epoch: int) -> tuple[Reached, ...]:
        return reached(Spent(seconds=self.spent), LimitsConfig(seconds=10))


@mutation(
    "a reached limit stops what is stored too", STOPPING,
    "if reached and not is_stored():", "if reached:",
)  # fmt: skip
def test_a_limit_ends_the_work_before_the_first_stage_that_would_be_computed() -> None:
    beside = Stage()

    def work() -> None:
        end = current_end()
        assert end is not None
        end.check("rollout", 2, lambda: True)
        end.started(beside)
        end.check("score", 2, lambda: False)

    with stopping(None, Spending(10)) as end:
        assert to_the_end(work) is None
    assert end and beside.waited == 1 and end.passed == {(2, "rollout")}
    assert [str(one) for one in end.reached] == ["limits.seconds 10 is reached, 10 are spent"]


def test_what_is_left_is_spent_before_a_limit_ends_the_work() -> None:
    with stopping(None, Spending(9.99)) as end:
        assert end and to_the_end(lambda: end.check("score", 2, lambda: False) or True)
    assert end.reached == ()


def test_without_an_end_everything_is_done() -> None:
    with stopping(END), stopping(None):
        assert current_end() is None
        assert to_the_end(lambda: 7) == 7


@mutation(
    "a cancelled stage is a failed one", STOPPING,
    "    except (Stopped, CancelledRun) as error:", "    except CancelledRun as error:",
)  # fmt: skip
@mutation(
    "a cancelled stage fails its epoch", STOPPING,
    "    except (Stopped, CancelledRun) as error:", "    except Stopped as error:",
)  # fmt: skip
@mutation(
    "a stage that ends between two steps has crashed", STOPPING,
    "    except progress.Cancelled:\n", "    except ZeroDivisionError:\n",
)  # fmt: skip
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            Stopped("update stopped after step 5:\nthe same command goes on"),
            "update .* 5: the same",
        ),
        (CancelledRun("stopped after step 5"), "^stopped after step 5$"),
        (Cancelled(), "the run was cancelled: Retry, or the same command, goes on"),
    ],
)
def test_what_a_cancelled_run_leaves_is_cancelled_and_not_failed(
    error: BaseException, says: str
) -> None:
    def ended() -> Any:
        raise error

    state = or_cancelled(ended)
    assert state.is_cancelled() and re.search(says, state.message)


def test_what_fails_still_fails() -> None:
    def failed() -> None:
        raise StageError("no memory")

    with pytest.raises(StageError, match="no memory"):
        or_cancelled(failed)
    assert or_cancelled(lambda: 3) == 3
