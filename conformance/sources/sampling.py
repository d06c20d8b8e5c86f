"""What PyTorch's databases have in common as sources: seeding."""

from __future__ import annotations

import contextlib
import random
import warnings
import zlib
from collections.abc import Iterable, Iterator
from unittest import mock

import numpy
import torch

from torchstone.compiler._torch.op_database import no_stack_walks
from torchstone.conformance.errors import UnknownName
from torchstone.conformance.program.literals import DTYPES


@contextlib.contextmanager
def seeded(key: str) -> Iterator[None]:
    """Seed every generator a database draws from, and give the caller its own state back.

    One thread meanwhile: the tensors are tiny, and threads waiting for each other cost more than the work.
    """
    seed = zlib.crc32(key.encode())
    threads = torch.get_num_threads()
    python, array = random.getstate(), numpy.random.get_state()
    cheap_seed = mock.patch.object(
        torch, "manual_seed", torch.default_generator.manual_seed
    )  # no stack for CUDA's sake
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), cheap_seed, no_stack_walks():
        warnings.simplefilter("ignore")
        try:
            torch.set_num_threads(1)
            random.seed(seed)
            numpy.random.seed(seed)
            torch.manual_seed(seed)
            yield
        finally:
            torch.set_num_threads(threads)
            random.setstate(python)
            numpy.random.set_state(array)


def check_dtypes(dtypes: Iterable[str] | None) -> list[str] | None:
    """Return the dtypes as a list, None for all. Raises ``UnknownName``."""
    wanted = None if dtypes is None else list(dtypes)
    for dtype in wanted or ():
        if dtype not in DTYPES:
            raise UnknownName("dtype", dtype, DTYPES)
    return wanted


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0][:200]
