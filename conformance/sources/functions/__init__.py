"""Public functions that PyTorch's op database has no record of, in the form of its records.

A release of PyTorch that has a record of its own of a function, or has no such function, has no row of ours. Where that
record has no sample of an overload, or of an argument, a row of another variant has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchstone.conformance.program.literals import ProgramError
from torchstone.conformance.sources import opinfo
from torchstone.conformance.sources.functions.arguments import ARGUMENTS
from torchstone.conformance.sources.functions.layers import LAYERS
from torchstone.conformance.sources.functions.overloads import OVERLOADS
from torchstone.conformance.sources.functions.products import PRODUCTS
from torchstone.conformance.sources.functions.recurrent import RECURRENT
from torchstone.conformance.sources.functions.row import Function
from torchstone.conformance.sources.functions.tensors import TENSORS
from torchstone.conformance.sources.functions.values import VALUES
from torchstone.conformance.sources.op_database import OpDatabase

SOURCE = "functions"
ROWS: tuple[Function, ...] = (*ARGUMENTS, *LAYERS, *OVERLOADS, *PRODUCTS, *RECURRENT, *VALUES, *TENSORS)


def _load() -> Iterator[Any]:
    known = {info.name for info in opinfo.DATABASE.infos.values()}
    for row in ROWS:
        if row.variant or row.name not in known:
            try:
                yield row.info()
            except ProgramError:  # this release has none
                continue


DATABASE = OpDatabase(SOURCE, _load)

op_names = DATABASE.op_names
dtypes_of = DATABASE.dtypes_of
info_of = DATABASE.info_of
select = DATABASE.select
tags_of = DATABASE.tags_of
iterate = DATABASE.iterate
case = DATABASE.case
