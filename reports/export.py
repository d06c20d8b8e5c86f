"""The verdicts of runs as one file for other tools: Parquet, CSV, JSON, or JSON lines."""

from __future__ import annotations

import importlib
import io
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from torchstone.conformance.escape import csv_rows
from torchstone.conformance.files import replace_file
from torchstone.conformance.store import VERDICT_COLUMNS, RunRecord, Store, parse_evidence
from torchstone.reports.results import ReportError

COLUMNS = ("run", *VERDICT_COLUMNS)
BATCH = 10_000


class ExportFormat(StrEnum):
    """What the file is."""

    parquet = "parquet"
    csv = "csv"
    json = "json"
    jsonl = "jsonl"


def export(store: Store, runs: Sequence[RunRecord], out: Path, form: ExportFormat) -> int:
    """Write one row a verdict, run by run, ordered by backend and case; return how many. The file is replaced whole.

    The columns are ``COLUMNS``. Evidence is JSON: a value in json and jsonl, text in csv and parquet. Raises
    ReportError for a file that is the store itself and for Parquet without pyarrow, InputError for a file that cannot
    be written.
    """
    if out.exists() and store.path.exists() and out.samefile(store.path):
        raise ReportError(f"{out} is the store itself; give another --out")
    write = _WRITERS[form](runs)
    with replace_file(out) as file:
        return write(file, _rows(store, runs))


def _rows(store: Store, runs: Sequence[RunRecord]) -> Iterator[tuple[Any, ...]]:
    for run in runs:
        for row in store.iter_verdicts(run.run):
            yield (run.run, *row)


def _csv(runs: Sequence[RunRecord]) -> Callable[..., int]:
    def write(file: BinaryIO, rows: Iterator[tuple[Any, ...]]) -> int:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
        count = csv_rows(text, itertools.chain([COLUMNS], rows)) - 1
        text.detach()
        return count

    return write


def _json(lines: bool) -> Callable[[Sequence[RunRecord]], Callable[..., int]]:
    opening, between, closing = (b"", b"\n", b"\n") if lines else (b"[\n", b",\n", b"\n]\n")

    def write(file: BinaryIO, rows: Iterator[tuple[Any, ...]]) -> int:
        file.write(opening)
        count = 0
        for count, row in enumerate(rows, start=1):
            record = dict(zip(COLUMNS, row, strict=True))
            record["evidence"] = strict(parse_evidence(record["evidence"], record["case_id"]))
            text = json.dumps(strict(record), ensure_ascii=False, allow_nan=False)
            file.write((between if count > 1 else b"") + text.encode("utf-8", "backslashreplace"))
        file.write(closing if count or not lines else b"")
        return count

    return lambda runs: write


def strict(value: Any) -> Any:
    """Spell the floats that JSON has no number for, so that any JSON reader takes the file."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    return [strict(item) for item in value] if isinstance(value, list) else value


def _parquet(runs: Sequence[RunRecord]) -> Callable[..., int]:
    try:
        pyarrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ReportError(
            "Parquet needs pyarrow, which is not installed: pip install 'torchstone[parquet]'; or export csv or jsonl"
        ) from error
    types = [(name, pyarrow.float64() if name == "seconds" else pyarrow.string()) for name in COLUMNS]
    records = [{"run": r.run, "versions": r.versions, "options": r.options, "device": r.device} for r in runs]
    schema = pyarrow.schema(types, metadata={"torchstone.runs": json.dumps(records)})

    def write(file: BinaryIO, rows: Iterator[tuple[Any, ...]]) -> int:
        count = 0
        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            while batch := list(itertools.islice(rows, BATCH)):
                columns = dict(zip(COLUMNS, map(list, zip(*batch, strict=True)), strict=True))
                writer.write_table(pyarrow.table(columns, schema=schema))
                count += len(batch)
        return count

    return write


_WRITERS: dict[ExportFormat, Callable[[Sequence[RunRecord]], Callable[..., int]]] = {
    ExportFormat.parquet: _parquet,
    ExportFormat.csv: _csv,
    ExportFormat.json: _json(False),
    ExportFormat.jsonl: _json(True),
}
