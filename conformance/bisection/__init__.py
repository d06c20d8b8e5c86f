"""Which stage of a compiler a failure comes from: ``torchstone bisect``.

A compiler is a row of stages. What each leaves for the next can be run: a captured program by PyTorch's kernels, FlatIR
by its evaluator, a lowered op in a kernel of its own. The case is tried on each such prefix of the compiler, as on a
backend, and judged by the oracle. The first stage that shows the failure is to blame; where it has parts that can be
tried alone (an expansion, the lowering of a primitive, a pass), so are they.
"""

from torchstone.conformance.bisection.search import Blame, Part, Rung, Tried, bisect

__all__ = ["Blame", "Part", "Rung", "Tried", "bisect"]
