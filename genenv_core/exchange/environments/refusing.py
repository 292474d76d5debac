"""Which domains cannot be given away as a folder, and what to do instead."""

from __future__ import annotations

from genenv_core.domains.protocol import Domain, begins_anew, judged_while_played
from genenv_core.errors import ConfigError


def check_givable(domain: Domain, others: str = "") -> None:
    """Raise ConfigError for a domain that no folder can hold.

    `others` are the names of the domains beside it in the run, as a sentence lists them.
    """
    if judged_while_played(domain):
        apart = f", and those of {others} with --domain" if others else ""
        raise ConfigError(
            f"domain {domain.name}: its environment is a server, which judges attempts while they "
            "are played: give that server away, and the attempts with --pool d_train --format "
            f"jsonl{apart}"
        )
    if begins_anew(domain):
        raise ConfigError(
            f"domain {domain.name}: with these options it begins the conversation anew, and who "
            "plays a folder keeps one conversation: give away tasks of a run without that option, "
            "and these attempts with --pool d_train --format jsonl"
        )
