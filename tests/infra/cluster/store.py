"""Versioned objects with watches, as the API server keeps them in etcd."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]
Place = tuple[str, str, str]
"""Resource, namespace, name."""


class Gone(Exception):
    """The store has forgotten the version from which a watch wants to start."""


class Refused(Exception):
    """The API refuses a request with this status, reason and message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


@dataclass(frozen=True)
class Change:
    """One change: its version, its type, the resource and the object afterwards."""

    version: int
    kind: str
    resource: str
    item: Object


class Store:
    """Objects by place. Each change gets the next version and is kept for watches."""

    def __init__(self) -> None:
        self.objects: dict[Place, Object] = {}
        self.version = 100
        self._history: list[Change] = []
        self._oldest = 100
        self._changed = asyncio.Condition()

    def get(self, resource: str, namespace: str, name: str) -> Object:
        """Return a copy of an object."""
        found = self.objects.get((resource, namespace, name))
        if found is None:
            raise Refused(404, "NotFound", f'{resource} "{name}" not found')
        return copy.deepcopy(found)

    def list(self, resource: str, namespace: str, selector: str = "") -> list[Object]:
        """Return copies of the objects of a resource that a label selector matches."""
        return [
            copy.deepcopy(item)
            for (kind, space, _), item in self.objects.items()
            if kind == resource and space == namespace and selected(item, selector)
        ]

    async def create(self, resource: str, namespace: str, item: Object) -> Object:
        """Add an object and set its name, uid and creation time."""
        meta = item.setdefault("metadata", {})
        if "name" not in meta:
            meta["name"] = meta.get("generateName", "x-") + uuid.uuid4().hex[:5]
        place = (resource, namespace, meta["name"])
        if place in self.objects:
            raise Refused(409, "AlreadyExists", f'{resource} "{meta["name"]}" already exists')
        meta.update(
            namespace=namespace,
            uid=str(uuid.uuid4()),
            creationTimestamp=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        await self._note("ADDED", place, item)
        return copy.deepcopy(item)

    async def update(self, resource: str, item: Object) -> None:
        """Replace an existing object if it differs; a deleted one stays deleted."""
        place = (resource, item["metadata"]["namespace"], item["metadata"]["name"])
        known = self.objects.get(place)
        if known is None or known["metadata"]["uid"] != item["metadata"]["uid"]:
            return
        item["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"]
        if item != known:
            await self._note("MODIFIED", place, item)

    async def remove(self, resource: str, item: Object) -> None:
        """Remove an object."""
        place = (resource, item["metadata"]["namespace"], item["metadata"]["name"])
        if place in self.objects:
            await self._note("DELETED", place, self.objects[place])

    async def _note(self, kind: str, place: Place, item: Object) -> None:
        self.version += 1
        item = copy.deepcopy(item)
        item["metadata"]["resourceVersion"] = str(self.version)
        if kind == "DELETED":
            del self.objects[place]
        else:
            self.objects[place] = item
        self._history.append(Change(self.version, kind, place[0], item))
        async with self._changed:
            self._changed.notify_all()

    def compact(self) -> None:
        """Forget the history, so that watches from an older version are refused."""
        self._history.clear()
        self._oldest = self.version

    async def watch(self, resource: str, namespace: str, since: int) -> AsyncIterator[Change]:
        """Yield each change after a version when it happens; raises Gone if that is too old."""
        while True:
            if since < self._oldest:
                raise Gone
            for change in [change for change in self._history if change.version > since]:
                since = change.version
                if change.resource == resource and _space(change.item) == namespace:
                    yield change
            async with self._changed:
                if self.version <= since:
                    await self._changed.wait()


def selected(item: Object, selector: str) -> bool:
    """Return whether a label selector (equality and existence) matches an object."""
    labels = item["metadata"].get("labels", {})
    for term in filter(None, selector.split(",")):
        key, equals, value = term.replace("==", "=").partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    return True


def _space(item: Object) -> str:
    return item["metadata"]["namespace"]
