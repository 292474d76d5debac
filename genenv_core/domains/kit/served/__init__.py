"""Domains of environments that a server plays: what the protocols of such servers share."""
