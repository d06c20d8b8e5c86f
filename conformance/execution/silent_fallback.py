"""Whether eager's own kernels computed what a backend says that its own code did.

A backend tells what ran (see ``proof``), mostly from what it compiled. One that falls back where nobody looks, an error
swallowed and the program run as it is, tells the same. PyTorch's profiler sees it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torchstone.conformance.backends.watch import eager_ops
from torchstone.conformance.execution.repeatability import Run, observe
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import Finding
from torchstone.conformance.oracle.op_traits.execution import RUNS_IN_ANY_RUNTIME
from torchstone.conformance.program.case import Case


def witnessed(finding: Finding, case: Case, backend: Any, executable: Run) -> Finding:
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
    wanted = {call.operator for call in case.program.calls} - RUNS_IN_ANY_RUNTIME.ops.keys()
    if not wanted:
        return finding
    args = case.fresh_args()
    with eager_ops(wanted) as ran:
        observe(executable, args)
    if not ran:
        return finding
    message = f"eager ran {', '.join(sorted(ran))}, unseen by the backend, which tells of {', '.join(own)} alone"
    return replace(finding, outcome=Outcome.FALLBACK, message=message)
