"""The embedded domain `desk`: chains of stock-keeping tool calls, with a knob for difficulty."""

from genenv_core.domains.desk.desk_domain import DeskDomain, DeskOptions

__all__ = ["DeskDomain", "DeskOptions"]
