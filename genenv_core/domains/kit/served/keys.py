"""The key of a hosted server: named in options, read when the server is asked, sent to it alone."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import ConfigError
from genenv_core.machine.named_secrets import ADDRESS, secret_in

AUTHORIZATION = "Authorization"
"""The header that most hosts read a key from, as `Bearer KEY`; another one has the key alone."""

HIDDEN = "***"
"""What stands in the place of the key where a server repeats it."""

_KEY = re.compile("[!-~]{8,}")
"""What a key may be. A shorter one would stand in words that are no secret."""


class AccessRefused(EnvironmentLost):
    """The server lets nobody in with this key, or not now: to ask again at once is no use."""


@dataclass(frozen=True, slots=True)
class ServerKey:
    """Where a server's key is, and the header that it is sent in.

    Args:
        variable: name of the environment variable; None: no key is sent.
        header: name of the header.
    """

    variable: str | None = None
    header: str = AUTHORIZATION

    def read(self) -> str:
        """Return the key, '' where none is sent; raises ConfigError where its variable has none."""
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
        """Return what is sent with each request; raises as `read`."""
        if not (key := self.read()):
            return {}
        return {self.header: f"Bearer {key}" if self.header == AUTHORIZATION else key}

    def hide(self, text: str) -> str:
        """Return what a server says without the key."""
        key = self.read()
        return text.replace(key, HIDDEN) if key else text

    def check_place(self, url: str) -> None:
        """Raise ConfigError where the key would go over a network that anybody can read."""
        parts = urlsplit(url)
        if self.variable is None or parts.scheme == "https" or _is_here(parts.hostname or ""):
            return
        raise ConfigError(
            f"domain.options.url {url}: the key in {self.variable} would be sent unencrypted: give "
            "the server's https:// address (http is for this machine alone)"
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
    """Return an address; raises ConfigError for one that is none, or in which a key could stand."""
    if re.fullmatch(ADDRESS, url):
        return url
    shown = "" if set(url) & set("@?#") else f" {url[:200]}"
    raise ConfigError(
        f"{place}{shown}: it is no address such as https://HOST or http://HOST:PORT, without a "
        "user, a password and a query; a key goes into the environment variable that "
        "domain.options.key_env names"
    )


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
