"""Fuzzing campaigns in a store: beside the runs, and none of them.

A campaign has one row by its folder and backend, however often it was stopped and gone on with. What it did is kept as
JSON values, as its own file has them; of each finding the reduced case is kept, too.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchstone.conformance.escape import utf8
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.store import opening
from torchstone.conformance.store.opening import StoreError
from torchstone.conformance.store.untrusted import unpacked

if TYPE_CHECKING:
    from torchstone.conformance.store.store import Store

_OUTCOMES = frozenset(map(str, Outcome))


@dataclass(frozen=True)
class Campaign:
    """A campaign. ``record`` has what it did, by the keys of ``campaign.json``."""

    backend: str
    folder: str
    updated: str
    command: str
    record: dict[str, Any]


def record_campaign(store: Store, campaign: Campaign, cases: Mapping[str, bytes]) -> None:
    """Write a campaign, in the place of what was known of it; ``cases`` are those of its findings by name."""
    texts = (campaign.backend, campaign.folder, campaign.updated, campaign.command, json.dumps(campaign.record))
    db = store._db
    with opening.sqlite_errors(store.path):
        db.execute("BEGIN IMMEDIATE")
        try:
            key = tuple(map(utf8, texts[:2]))
            db.execute("DELETE FROM findings WHERE backend = ? AND folder = ?", key)
            db.execute("INSERT OR REPLACE INTO campaigns VALUES (?, ?, ?, ?, ?)", tuple(map(utf8, texts)))
            rows = [(*key, utf8(name), zlib.compress(data, 6)) for name, data in cases.items()]
            db.executemany("INSERT INTO findings VALUES (?, ?, ?, ?)", rows)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def campaigns(store: Store) -> list[Campaign]:
    """Return all campaigns, by backend and time. Raises StoreError for a row that is none."""
    with opening.sqlite_errors(store.path):
        rows = store._db.execute(
            "SELECT backend, folder, updated, command, record FROM campaigns ORDER BY backend, updated, folder"
        ).fetchall()
    return [_campaign(store, row) for row in rows]


def _campaign(store: Store, row: tuple[Any, ...]) -> Campaign:
    backend, folder, updated, command, record = row
    try:
        found = json.loads(record)
        if not (all(isinstance(text, str) for text in row[:4]) and _well_formed(found)):
            raise ValueError("it is no record of one")
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError(f"{store.path} is corrupt: the campaign in {folder!r:.200} does not read: {error}") from error
    return Campaign(backend, folder, updated, command, found)


def _well_formed(record: Any) -> bool:
    """Whether what a campaign did is of the types that are read of it."""

    def counts(value: Any) -> bool:
        return isinstance(value, dict) and all(type(count) is int for count in value.values())

    def finding(told: Any) -> bool:
        return (
            isinstance(told, dict)
            and all(isinstance(told.get(key), str) for key in ("name", "signature", "message"))
            and type(told.get("seen")) is int
            and isinstance(told.get("blames"), list)
            and all(isinstance(op, str) for op in told["blames"])
            and isinstance(told.get("cause", ""), str)
        )

    return (
        isinstance(record, dict)
        and all(type(record.get(key)) is int for key in ("programs", "seed"))
        and all(type(record.get(key)) is bool for key in ("finished", "interrupted"))
        and type(record.get("seconds")) in (int, float)
        and math.isfinite(record["seconds"])
        and all(counts(record.get(key)) for key in ("outcomes", "ops", "drafts"))
        and record["outcomes"].keys() <= _OUTCOMES
        and isinstance(record.get("findings"), list)
        and all(map(finding, record["findings"]))
    )


def finding_case(store: Store, backend: str, folder: str, name: str) -> bytes | None:
    """Return the reduced case of a finding, None where there is none."""
    with opening.sqlite_errors(store.path):
        query = "SELECT data FROM findings WHERE backend = ? AND folder = ? AND name = ?"
        row = store._db.execute(query, (backend, folder, name)).fetchone()
    return None if row is None else unpacked(row[0], store.path, f"the case of {name}")
