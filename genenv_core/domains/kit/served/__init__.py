"""Domains of environments that a server plays: what all protocols of such servers share."""
