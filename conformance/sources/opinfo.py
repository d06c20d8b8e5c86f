"""PyTorch's own op database as cases: every op, every dtype it supports on CPU, every sample."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from torchstone.conformance.sources.op_database import OpDatabase

SOURCE = "opinfo"


class _Database(OpDatabase):
    def samples(self, info: Any, dtype: str) -> Iterator[Any]:
        for index, sample in enumerate(super().samples(info, dtype)):
            if info.name == "meshgrid":  # the database walks a set of strings, in an order that differs by process
                sample.kwargs["indexing"] = ("ij", "xy")[index % 2]
            yield sample


def _load() -> Any:
    """The import takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchstone.compiler._torch.op_database import op_db
    return op_db


DATABASE = _Database(SOURCE, _load)

op_names = DATABASE.op_names
dtypes_of = DATABASE.dtypes_of
info_of = DATABASE.info_of
select = DATABASE.select
tags_of = DATABASE.tags_of
iterate = DATABASE.iterate
case = DATABASE.case
entry_of = DATABASE.entry_of
target_of = DATABASE.target_of
