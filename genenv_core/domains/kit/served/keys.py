"""The key of a hosted server: options name its variable, and only that server gets it.

The code reads the variable at each request, and keeps the key nowhere.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit

from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import ConfigError
from genenv_core.machine.named_secrets import ADDRESS, secret_in

log = logging.getLogger("genenv.inputs")

AUTHORIZATION = "Authorization"
"""The header in which most hosts expect `Bearer KEY`; any other header holds the key alone."""

HIDDEN = "***"
"""The text in place of the key where a server repeats it."""

_KEY = re.compile("[!-~]{8,}")
"""The form of a key. A shorter one could occur in words that are no secret."""


class AccessRefused(EnvironmentLost):
    """The server refuses this key, or is closed for now: asking again at once does not help."""


@dataclass(frozen=True, slots=True)
class ServerKey:
    """Where a server's key is, and the header that sends it.

    Args:
        variable: name of the environment variable; None: requests have no key.
        header: name of the header.
        over_http: whether the key may go over plain HTTP to another machine.
    """

    variable: str | None = None
    header: str = AUTHORIZATION
    over_http: bool = False

    def read(self) -> str:
        """Return the key that the variable holds, or '' for a server without keys.

        Raises ConfigError where the variable is not set, or where its value has not the form of a
        key.
        """
        if self.variable is None:
            return ""
        key = secret_in(self.variable)
        place = f"domain.options.key_env names the variable {self.variable}, which"
        if not key:
            raise ConfigError(
                f"{place} is not set here: set it to the server's key wherever genenv and its "
                "workers run, or remove the option for a server without keys"
            )
        if not _KEY.fullmatch(key):
            raise ConfigError(
                f"{place} holds no key: one has 8 letters or more, of ASCII, and no spaces"
            )
        return key

    def headers(self) -> dict[str, str]:
        """Return the headers with the key for each request, {} without one; raises as `read`."""
        if not (key := self.read()):
            return {}
        return {self.header: f"Bearer {key}" if self.header == AUTHORIZATION else key}

    def hide(self, text: str) -> str:
        """Return a server's text with `HIDDEN` in place of the key; raises as `read`."""
        key = self.read()
        return text.replace(key, HIDDEN) if key else text

    def check_place(self, url: str) -> None:
        """Raise ConfigError where the key would go unencrypted to another machine.

        With `over_http` the key may go there, and a warning says so once a process.
        """
        parts = urlsplit(url)
        if self.variable is None or parts.scheme == "https" or _is_here(parts.hostname or ""):
            return
        if self.over_http:
            return _warn(url, self.variable)
        raise ConfigError(
            f"domain.options.url {url}: the key in {self.variable} would be sent unencrypted: give "
            "the server's https:// address; inside a network that nobody else reads, such as a "
            "cluster's own, domain.options.key_over_http: true permits http"
        )

    def refused(self, where: str, said: str) -> AccessRefused:
        """Return the error about a server that refuses the key, or a request without one."""
        if self.variable is None:
            return AccessRefused(
                f"{where} {said}: it refuses a request without a key: name the environment "
                "variable that holds one in domain.options.key_env"
            )
        return AccessRefused(
            f"{where} {said}: it refuses the key in {self.variable} (header {self.header}): set "
            "that variable to a key that may use this server, and see domain.options.key_header"
        )

    def kept_back(self, where: str, to: str) -> AccessRefused:
        """Return the error about a server that redirects to another address."""
        place = urlsplit(to)
        shown = f"{place.scheme}://{place.hostname}" if place.hostname else "another path"
        return AccessRefused(
            f"{where} redirects to {shown}, and the key in {self.variable} goes to the configured "
            "address alone: give the server's own address in domain.options.url"
        )


def check_address(url: str, place: str) -> str:
    """Return the address of a server; errors call it `place`.

    Raises ConfigError for a text that is no address, and for an address with a user, a password or
    a query: a key could stand there.
    """
    if re.fullmatch(ADDRESS, url):
        return url
    shown = "" if set(url) & set("@?#") else f" {url[:200]}"
    raise ConfigError(
        f"{place}{shown}: give an address such as https://HOST or http://HOST:PORT, without user, "
        "password or query; put a key into the environment variable that domain.options.key_env "
        "names"
    )


@cache
def _warn(url: str, variable: str) -> None:
    """Log, once for each address, that a key goes over the network unencrypted."""
    log.warning(
        "key_over_http: the key in %s goes unencrypted to %s: whoever reads the network between "
        "reads the key",
        variable,
        url,
    )


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
