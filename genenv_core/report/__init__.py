"""The report on runs: what is read (`data`, `examples`), drawn (`charts`) and laid out (`page`)."""

from genenv_core.report.data import RunReport, read_report
from genenv_core.report.page import render

__all__ = ["RunReport", "read_report", "render"]
