"""Labels of a run: tags, a note, a pin. They belong neither to the run's identity nor to a key.

The record lies beside the run's configuration. Every change reads it, changes it, and writes it
only if nobody else has written it meanwhile, so two people who tag one run at once both see their
tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from genenv_core.errors import ConfigError, one_line
from genenv_core.record import Record
from genenv_core.storage import paths
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.finding import kept_record
from genenv_core.storage.store.protocol import Store

TAG = r"[A-Za-z0-9][A-Za-z0-9._:/=+-]{0,62}"
"""Form of a tag, which goes into commands and SQL without quotes."""

NOTE_CHARACTERS = 1000


class Labels(SealedRecord):
    """The tags (sorted), the note and the pin of a run; a pinned run keeps what gc would take."""

    tags: tuple[str, ...] = ()
    note: str = ""
    pinned: bool = False


NONE = Labels()


class Change(Record):
    """What to change of a run's labels; None leaves the note or the pin as it is."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    note: str | None = None
    pinned: bool | None = None

    def applied(self, labels: Labels) -> Labels:
        """Return the labels after this change.

        Raises ConfigError for a tag to remove that does not exist.
        """
        if missing := sorted(set(self.remove) - set(labels.tags)):
            known = ", ".join(labels.tags) or "none"
            raise ConfigError(f"there is no tag {missing[0]!r} to remove; its tags: {known}")
        return Labels(
            tags=tuple(sorted((set(labels.tags) | set(self.add)) - set(self.remove))),
            note=labels.note if self.note is None else self.note,
            pinned=labels.pinned if self.pinned is None else self.pinned,
        )


def change_of(
    add: Iterable[str] = (),
    remove: Iterable[str] = (),
    note: str | None = None,
    pinned: bool | None = None,
) -> Change:
    """Return a checked change; raises ConfigError for an invalid tag or note."""
    add, remove = tuple(add), tuple(remove)
    for tag in add:
        if not re.fullmatch(TAG, tag):
            raise ConfigError(
                f"tag {one_line(tag, 80)!r}: a tag has up to 63 letters, digits and . _ : / = + -, "
                "and starts with a letter or a digit; --note takes any text"
            )
    if both := sorted(set(add) & set(remove)):
        raise ConfigError(f"tag {both[0]!r} is to be added and removed: leave one of the two out")
    if note is not None:
        note = one_line(note)
        if len(note) > NOTE_CHARACTERS:
            raise ConfigError(
                f"the note has {len(note)} characters, at most {NOTE_CHARACTERS} are kept: "
                "shorten it"
            )
    return Change(add=add, remove=remove, note=note, pinned=pinned)


def read_labels(store: Store, run_id: str) -> Labels:
    """Return a run's labels; log a warning for a damaged record, and ignore it."""
    return _read(store, run_id)[1]


def change_labels(store: Store, run_id: str, change: Change) -> Labels:
    """Change a run's labels, and return them.

    Raises ConfigError for a tag to remove that does not exist.
    """
    path = paths.run_labels(run_id)
    while True:
        before, known = _read(store, run_id)
        after = change.applied(known)
        data = after.to_bytes()
        nothing = before is None and after == NONE
        if nothing or data == before or store.swap(path, before, data):
            return after


def merged(there: Labels, coming: Labels) -> Labels:
    """Merge the labels of a run and its copy: keeps the tags and the pin of both.

    Where both have a note, that of `there` stays.
    """
    return Labels(
        tags=tuple(sorted({*there.tags, *coming.tags})),
        note=there.note or coming.note,
        pinned=there.pinned or coming.pinned,
    )


def _read(store: Store, run_id: str) -> tuple[bytes | None, Labels]:
    path = paths.run_labels(run_id)
    damaged = f"run={run_id} its tags, note and pin are unreadable: {path}"
    data, labels = kept_record(store, path, Labels.from_bytes, damaged)
    return data, labels or NONE
