"""What a store may hold that somebody else wrote: anything. What is read from one is checked before it is used."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from torchstone.conformance.store.opening import StoreError

MAX_DEPTH = 64
MAX_CASE_BYTES = 1 << 30
"""What a stored case may unpack to."""
_LISTS = ("backends", "sources", "ops", "dtypes", "variants", "tags", "cases")


def options_well_formed(options: dict[str, Any]) -> bool:
    """Whether the options of a run are of the types that ``torchstone run`` writes, those that there are."""

    def texts(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)

    def named(value: Any) -> bool:
        return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())

    earlier = options.get("earlier")
    return (
        all(options.get(name) is None or texts(options[name]) for name in _LISTS)
        and type(options.get("limit")) in (int, type(None))
        and isinstance(options.get("shard"), str | None)
        and named(options.get("pythons", {}))
        and (earlier is None or (isinstance(earlier, dict) and named(earlier.get("runs"))))
    )


def parse_evidence(text: str, case_id: str) -> dict[str, Any]:
    """Return the evidence of a stored verdict. Raises StoreError where it is not the JSON of an object."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise StoreError(f"the evidence of case {case_id!r:.200} is not JSON: {error}") from error
    if not isinstance(found, dict) or not _shallow(found):
        raise StoreError(f"the evidence of case {case_id!r:.200} is not an object, or nested past {MAX_DEPTH} levels")
    return found


def _shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for held in level for item in (held.values() if isinstance(held, dict) else held)]
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return True
    return False


def unpacked(data: bytes, path: Path, what: str) -> bytes:
    """Return the bytes of a stored case. Raises StoreError where they are damaged, or too many."""
    unpack = zlib.decompressobj()
    try:
        found = unpack.decompress(data, MAX_CASE_BYTES)
    except (zlib.error, TypeError) as error:
        raise StoreError(f"{path} is corrupt: the bytes of {what} do not unpack") from error
    if not unpack.eof:
        raise StoreError(f"{path} is corrupt: the bytes of {what} are cut off or past {MAX_CASE_BYTES:,}")
    return found
