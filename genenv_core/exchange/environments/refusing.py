"""Which domains cannot be given away as a folder, and what to do instead."""

from __future__ import annotations

from genenv_core.domains.protocol import Domain, JoinsDomains, judged_while_played
from genenv_core.errors import ConfigError


def check_givable(domain: Domain) -> None:
    """Raise ConfigError for a domain that no folder can hold."""
    if isinstance(domain, JoinsDomains):
        labels = ", ".join(part.label for part in domain.parts)
        raise ConfigError(
            f"the run plays several domains ({labels}), and a folder holds the code of one: play "
            "a run of one domain, or give the attempts away with --pool d_train --format jsonl"
        )
    if judged_while_played(domain):
        raise ConfigError(
            f"domain {domain.name}: its environment is a server, which judges attempts while they "
            "are played: give that server away, and the attempts with --pool d_train --format jsonl"
        )
