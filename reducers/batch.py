"""All failures of a run on a backend: each distinct one reduced once, with a script that was seen to show it.

What is done is on disk, a folder each, and is not done again: a batch that was stopped goes on where it was. What could
not be reduced is tried again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import file_name
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.files import prepare_folder
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.store import verdict_of
from torchstone.reducers.blame import blamed
from torchstone.reducers.engine import Budget
from torchstone.reducers.failure import reduce_case
from torchstone.reducers.progress import Progress
from torchstone.reducers.signature import Signature, signature
from torchstone.reducers.write import SUMMARY, confirm_script, summary, write_reduction

if TYPE_CHECKING:
    from torchstone.conformance.store import Store

REDUCED = (Outcome.MISMATCH, Outcome.CRASH, Outcome.ERROR, Outcome.TIMEOUT, Outcome.OOM)


@dataclass(frozen=True)
class Failure:
    """What one bug is taken to be before it is reduced. ``cases`` are the ids of all that show it.

    An error is known by its message. A wrong number, a crash and a hang say nothing of their cause: they are one per op
    and dtype.
    """

    backend: str
    signature: Signature
    op: str
    dtype: str
    cases: tuple[str, ...]

    @property
    def name(self) -> str:
        """What its folder is called."""
        return file_name(self.signature.outcome, self.op, self.dtype, self.signature.digest)


def distinct_failures(rows: Iterable[tuple[Any, ...]], backend: str) -> list[Failure]:
    """Return the failures of a backend among the rows of a store, those of most cases first."""
    found: dict[tuple[Signature, str, str], Failure] = {}
    for row in rows:
        verdict = verdict_of(row)
        if verdict.backend != backend or verdict.outcome not in REDUCED:
            continue
        known = signature(verdict)
        key = (known, "", "") if verdict.outcome is Outcome.ERROR else (known, verdict.op, verdict.dtype)
        failure = found.get(key) or Failure(backend, known, verdict.op, verdict.dtype, ())
        found[key] = dataclasses.replace(failure, cases=(*failure.cases, verdict.case_id))
    return sorted(found.values(), key=lambda failure: (-len(failure.cases), failure.name))


def reduce_failures(
    store: Store,
    run: str,
    failures: Iterable[Failure],
    out: Path,
    *,
    budget: Budget,
    timeout: float,
    python: str | None = None,
    jobs: int = 1,
) -> Iterator[tuple[Failure, dict[str, Any], bool]]:
    """Reduce each failure into a folder of its own in ``out``; yield it with its summary and whether it is from before.

    The summary has, besides what one reduction writes, ``cases``, ``script`` (how it ended, and whether it ``shows``
    the failure) and ``same_as``: the failure before that was reduced to the same program.
    """
    seen: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        pool: Pool | None = None  # one for all: what a backend needs to start may take longer than a reduction
        for failure in failures:
            folder = out / failure.name
            record = _done(folder)
            before = record is not None
            if record is None:
                if pool is None:
                    pool = stack.enter_context(Pool(failure.backend, python=python, jobs=jobs, timeout=timeout))
                record = {"cases": list(failure.cases)}
                record |= _reduced(store, run, failure, folder, budget, timeout, pool, python)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / SUMMARY).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            yield failure, record | {"same_as": _same(record, failure, seen)}, before


def _done(folder: Path) -> dict[str, Any] | None:
    """Return the summary of what an earlier command reduced into the folder, None if there is none that was finished.

    Raises InputError for one of another form: it is not of ``reduce --all``.
    """
    path = folder / SUMMARY
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    except RecursionError:
        record = None
    if isinstance(record, dict) and not {"cases", "reduced", "script"} <= record.keys():
        return None
    for place, kind in _FORM.items():
        value = record
        for key in place.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if not isinstance(value, kind):
            raise InputError(f"{path} is no summary of a reduction: {place}; remove it, or choose another --out")
    return record


_FORM: dict[str, type | tuple[type, ...]] = {
    "cases": list,
    "confirmed": bool,
    "message": str,
    "reduced.dtypes": list,
    "reduced.program": list,
    "script.shows": bool,
    **{f"signature.{key}": str for key in ("stage", "outcome", "kind", "error", "message")},
    "trials": int,
    "seconds": (int, float),
}
"""What is read of a summary, by the keys that lead there."""


def _reduced(
    store: Store,
    run: str,
    failure: Failure,
    folder: Path,
    budget: Budget,
    timeout: float,
    pool: Pool,
    python: str | None,
) -> dict[str, Any]:
    """Reduce the first of a failure's cases that fails again as it did; its script confirms it, in a new process."""
    why = "no case is stored"
    for name in failure.cases[:3]:
        data = store.case_bytes(name, run)
        if data is None:
            continue
        try:
            case = Case.from_bytes(data)
            progress = Progress(prepare_folder(folder), case, failure.backend)
            found = reduce_case(
                case, failure.backend, budget=budget, pool=pool, so_far=progress.read(), keep=progress.write
            )
            progress.end()
        except InputError as error:
            why = str(error)
            continue
        found = found if python else blamed(found, timeout)
        write_reduction(found, folder)
        return summary(found) | {"script": dataclasses.asdict(confirm_script(found, folder, python))}
    return {"backend": failure.backend, "signature": dataclasses.asdict(failure.signature), "not_reduced": why}


def _same(record: dict[str, Any], failure: Failure, seen: dict[str, str]) -> str | None:
    if "reduced" not in record:
        return None
    known = {key: record["signature"].get(key) for key in ("stage", "outcome", "kind", "error", "message", "wrong")}
    key = json.dumps([record["reduced"]["program"], record["reduced"]["dtypes"], known])
    first = seen.setdefault(key, failure.name)
    return None if first == failure.name else first
