"""What the items of one pytest process share: a pool with one worker for each backend, and the entries at hand."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from torchstone.conformance.errors import HarnessError, InputError
from torchstone.conformance.execution.run_case import untested_verdict
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.pytest_plugin.keys import SELECTION
from torchstone.conformance.pytest_plugin.options import PluginOptions
from torchstone.conformance.variants.registry import DEFAULT

if TYPE_CHECKING:
    from torchstone.conformance.runner.pool import Pool

_SESSION = pytest.StashKey["Session"]()


class Session:
    """Runs cases for the items. Under pytest-xdist there is one in each of its workers."""

    def __init__(self, chosen: PluginOptions) -> None:
        self.chosen = chosen
        self.marks: dict[str, pytest.MarkDecorator] = {}
        self.expectations = chosen.read_expectations()
        self._pools: dict[str, Pool] = {}
        self._broken: dict[str, str] = {}  # backends whose workers cannot start, with the reason

    def verdict(self, backend: str, case: Case | Untested) -> Verdict:
        """Try a case on a backend."""
        if isinstance(case, Untested):
            return untested_verdict(case, backend)
        if not self.chosen.isolate:
            from torchstone.conformance.backends import load
            from torchstone.conformance.execution.run_case import run_case

            return run_case(case, load(backend))
        if backend not in self._broken:
            try:
                return self._pool(backend).verdict(case)
            except HarnessError as error:
                self._broken[backend] = str(error)
        return Verdict(
            case.id, backend, case.source, case.op, case.dtype, case.variant, Stage.CAPTURE, Outcome.HARNESS_ERROR,
            message=self._broken[backend],
        )  # fmt: skip

    def _pool(self, backend: str) -> Pool:
        if backend not in self._pools:
            from torchstone.conformance.runner.pool import Pool

            self._pools[backend] = Pool(backend, timeout=self.chosen.timeout)
        return self._pools[backend]

    def entry(self, case_id: str) -> Case | Untested:
        """The entry of an id, in its variant. Raises ``InputError``."""
        from torchstone.conformance.variants.apply import apply

        source, op, dtype, index, variant, *_ = [*case_id.split(":"), DEFAULT]
        names = [name for name in self.chosen.sources if name.partition("=")[0] == source]
        for name in names or [source]:
            found = _entries(name, op, dtype, self.chosen.limit).get(index)
            if found is not None:
                return apply(found, variant) if isinstance(found, Case) else found
        raise InputError(f"there is no case {case_id}: {source} has no sample {index} of {op} for {dtype}")

    def close(self) -> None:
        """End the workers."""
        while self._pools:
            self._pools.popitem()[1].close()


@functools.lru_cache(maxsize=2)  # items come op by op
def _entries(source: str, op: str, dtype: str, limit: int | None) -> dict[str, Case | Untested]:
    from torchstone.conformance.program.literals import DTYPES
    from torchstone.conformance.sources import load

    entries = load(source).iterate([op], [dtype] if dtype in DTYPES else None, limit)
    return {"*" if entry.index is None else str(entry.index): entry for entry in entries if entry.dtype == dtype}


def session_of(config: pytest.Config) -> Session:
    """The process's session, made when it is first asked for."""
    if _SESSION not in config.stash:
        config.stash[_SESSION] = Session(config.stash.get(SELECTION, None) or PluginOptions(("eager",)))
    return config.stash[_SESSION]


def close(config: pytest.Config) -> None:
    """End the workers that this process's items have used."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.close()
