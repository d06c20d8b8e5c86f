"""Planted bugs: eager with one defect each, as a backend, modelled on bugs that compilers of PyTorch have had.

    torchstone run --backend torchstone.conformance.planted:sin-of-large-angles --op sin

The mutants (``conformance.mutants``) are mistakes in our own compiler. These know nothing of it: a dispatch mode gives
an op another result under some condition, or a defect lies in what is kept between programs and calls. Each has a
witness: a program on which it differs from eager. ``none`` is the same backend without a bug.
"""

from __future__ import annotations

from torchstone.conformance.errors import UnknownName
from torchstone.conformance.planted import (
    bends,
    caches,
    convolution,
    dims,
    dtypes,
    gradients,
    indexing,
    layers,
    linear_algebra,
    loops,
    magnitudes,
    memory,
    nan,
    overflow,
    precision,
    randomness,
    refusals,
    rewrites,
    sizes,
    statistics,
    zeros,
)
from torchstone.conformance.planted.backend import PlantedBackend
from torchstone.conformance.planted.bug import PlantedBug, Witness

_TABLES = (
    nan,
    zeros,
    bends,
    magnitudes,
    overflow,
    precision,
    dtypes,
    sizes,
    indexing,
    dims,
    convolution,
    layers,
    linear_algebra,
    randomness,
    gradients,
    caches,
    memory,
    rewrites,
    refusals,
    loops,
    statistics,
)

BUGS: dict[str, PlantedBug] = {}
for _bug in (bug for table in _TABLES for bug in table.BUGS):
    if _bug.name in BUGS:
        raise ValueError(f"there are two planted bugs called {_bug.name}")
    BUGS[_bug.name] = _bug


def load(name: str) -> PlantedBackend:
    """The backend with a bug, or ``none``. Raises ``UnknownName``."""
    if name != "none" and name not in BUGS:
        raise UnknownName("planted bug", name, BUGS)
    return PlantedBackend(BUGS.get(name))


def __getattr__(name: str) -> PlantedBackend:
    """A bug's name as an attribute, which is how ``--backend module:attribute`` asks."""
    if name.startswith("__"):
        raise AttributeError(name)
    return load(name)


__all__ = ["BUGS", "PlantedBackend", "PlantedBug", "Witness", "load"]
