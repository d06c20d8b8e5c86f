"""Whether a right answer is the backend's own: ``pass`` when its own code ran, ``fallback`` when something else did.

What ran is told by the compiled callable, in ``evidence["ran"]``: the ops by executor. Which executors are the
backend's is told by the backend, in ``executors``. PyTorch's own kernels are the executor ``eager`` wherever they run.
An answer of eager's, compared with eager, says nothing about a backend, however it came to be called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torchstone.conformance.execution.verdict import UNPROVEN, Outcome
from torchstone.conformance.oracle.compare import Finding


def classify(finding: Finding, backend: Any, executable: Callable[..., Any]) -> Finding:
    """Return the finding with what the callable tells of itself; a pass that others had a part in is a ``fallback``.

    A pass of a backend that does not tell what ran, or what of that is its own, stays one, and is marked as unproven.
    """
    told = dict(getattr(executable, "evidence", None) or {})
    finding = replace(finding, evidence=finding.evidence | told)
    if finding.outcome is not Outcome.PASS:
        return finding
    ran: Any = told.get("ran")
    own = getattr(backend, "executors", None)
    if not _well_formed(ran):
        missing = "the backend does not tell what ran" if ran is None else 'evidence["ran"] is not ops by executor'
    elif not own:
        missing = "the backend does not tell which executors are its own"
    else:
        others = {executor: ops for executor, ops in ran.items() if ops and executor not in own}
        if not others:
            return finding
        return replace(finding, outcome=Outcome.FALLBACK, message="; ".join(map(_foreign_ops, others, others.values())))
    return replace(finding, evidence=finding.evidence | {UNPROVEN: missing})


def _well_formed(ran: Any) -> bool:
    return isinstance(ran, dict) and all(
        isinstance(executor, str) and isinstance(ops, list) and all(isinstance(op, str) for op in ops)
        for executor, ops in ran.items()
    )


def _foreign_ops(executor: str, ops: list[str]) -> str:
    """A reason that reports can group by: each op once, without its count."""
    return f"{executor} ran {', '.join(dict.fromkeys(op.partition(' x')[0] for op in ops))}"
