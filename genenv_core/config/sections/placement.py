"""Which stages are computed on which work pool."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, create_model

from genenv_core.config.sections.section import Section
from genenv_core.config.stages import STAGES, StageEntry
from genenv_core.machine.wrong_values import worded

INLINE = "inline"
"""The placement of a stage that its flow's own process computes."""

PLACE = worded(
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
    "up to 63 letters, digits, dots, hyphens and underscores, a letter or a digit first",
)
"""Names of work pools, of up to 63 characters: Kubernetes labels and Prefect's paths take them."""

Place = Annotated[str, Field(pattern=PLACE, max_length=63)]


def _field(entry: StageEntry) -> Any:
    """Return the field of a stage as `create_model` takes it."""
    does = f"{entry.does[0].upper()}{entry.does[1:]}"
    return Place, Field(INLINE, description=does + ("." if entry.model else "; runs no model."))


_Places: type[Section] = create_model(
    "_Places", __base__=Section, **{name: _field(entry) for name, entry in STAGES.items()}
)


class PlacementConfig(_Places):
    """Where each stage is computed: `inline`, the flow's own process, or the name of a Prefect work
    pool. It changes no result, so it is in no stage key. The processes of a work pool need the
    code, the libraries and the root of the flow. The flow itself logs to MLflow."""

    poll_seconds: float = Field(default=2.0, ge=0.1, le=60)
    """Time between two looks at a stage on a work pool."""
    start_seconds: float = Field(default=1800.0, ge=1, le=604_800)
    """Longest wait for a work pool to begin with a stage (a worker, a node, an image); then the
    stage fails and names what it was waiting for."""
    lost_seconds: float = Field(default=300.0, ge=1, le=86_400)
    """How long a begun stage may show no sign of life, and how long the Prefect API may not answer,
    before the stage counts as lost."""

    def of(self, stage: str) -> str:
        """Return where a stage is computed."""
        return getattr(self, stage)

    def work_pools(self) -> dict[str, str]:
        """Return stage -> work pool of the stages that are not inline."""
        return {name: place for name in STAGES if (place := self.of(name)) != INLINE}
