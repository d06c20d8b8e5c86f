"""Files that one process writes and another reads: each finds the old one or the new one, never half of one."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def replace_file(file: Path, parts: Iterable[Any]) -> None:
    """Put a file of these bytes in the place of another, or of none; OSError when that cannot be done."""
    part = file.with_name(f"{file.name}.{uuid.uuid4().hex}.part")  # of no other process, on no other machine
    try:
        with part.open("wb") as out:
            for data in parts:
                out.write(data)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
