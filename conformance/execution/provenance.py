"""Whether a right answer is the backend's own: ``pass`` when its own code ran, ``fallback`` when something else did.

The compiled callable says what ran, in ``evidence["ran"]``: the ops by executor. The backend says which executors are
its own, in ``executors``. PyTorch's own kernels are the executor ``eager`` wherever they run. Example: a callable with
``{"inductor": ["mm"], "eager": ["sort"]}`` of a backend with ``executors = ("inductor",)`` is a ``fallback``.

Most backends report what they compiled. One that swallows an error and runs the program in eager reports the same, so
PyTorch's profiler is asked as well (``detect_silent_fallback``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torchstone.conformance.backends.eager_ops import eager_ops
from torchstone.conformance.execution.repeatability import Runnable, observe
from torchstone.conformance.execution.verdict import UNPROVEN, Outcome
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.oracle.op_traits.execution import RUNS_IN_ANY_RUNTIME
from torchstone.conformance.program.case import Case

FOREIGN = "foreign"
"""The key in the evidence of a ``fallback`` for the executors that had a part in it and are not the backend's own."""


def classify(finding: Finding, backend: Any, executable: Callable[..., Any]) -> Finding:
    """Return the finding with what the callable tells of itself; a pass that others had a part in is a ``fallback``.

    A pass of a backend that does not tell what ran, or what of that is its own, stays one, and is marked as unproven.
    """
    evidence = dict(getattr(executable, "evidence", None) or {})
    finding = replace(finding, evidence=finding.evidence | evidence)
    if finding.outcome is not Outcome.PASS:
        return finding
    ran: Any = evidence.get("ran")
    own = getattr(backend, "executors", None)
    if not _well_formed(ran):
        missing = "the backend does not tell what ran" if ran is None else 'evidence["ran"] is not ops by executor'
    elif not own:
        missing = "the backend does not tell which executors are its own"
    else:
        others = {executor: ops for executor, ops in ran.items() if ops and executor not in own}
        if not others:
            return finding
        message = "; ".join(map(_foreign_ops, others, others.values()))
        evidence = finding.evidence | {FOREIGN: sorted(others)}
        return replace(finding, outcome=Outcome.FALLBACK, message=message, evidence=evidence)
    return replace(finding, evidence=finding.evidence | {UNPROVEN: missing})


def _well_formed(ran: Any) -> bool:
    return isinstance(ran, dict) and all(
        isinstance(executor, str) and isinstance(ops, list) and all(isinstance(op, str) for op in ops)
        for executor, ops in ran.items()
    )


def _foreign_ops(executor: str, ops: list[str]) -> str:
    """A reason that reports can group by: each op once, without its count."""
    return f"{executor} ran {', '.join(dict.fromkeys(op.partition(' x')[0] for op in ops))}"


def detect_silent_fallback(finding: Finding, case: Case, backend: Any, executable: Runnable) -> Finding:
    """Return the finding; a pass is a ``fallback`` where ops that the program itself calls are seen to run in eager.

    Asked only where the backend tells what is its own and that all of it was, and where its own code is not made of
    PyTorch's kernels; calls the executable once more, and raises what it raises.
    """
    own = getattr(backend, "executors", None)
    if (
        finding.outcome is not Outcome.PASS
        or not own
        or "eager" in own
        or getattr(backend, "uses_eager_kernels", False)
    ):
        return finding
    wanted = {call.operator for call in case.program.every_call} - RUNS_IN_ANY_RUNTIME.ops.keys()
    if not wanted:
        return finding
    args = case.fresh_args()
    with eager_ops(wanted) as ran:
        observe(executable, args)
    if not ran:
        return finding
    message = f"eager ran {', '.join(sorted(ran))}, unseen by the backend, which tells of {', '.join(own)} alone"
    return replace(finding, outcome=Outcome.FALLBACK, message=message)
