"""Which stage of a compiler a failure comes from: ``torchstone bisect``.

A compiler is a row of stages. What each leaves for the next can be run: a captured program by PyTorch's kernels, FlatIR
by its evaluator, a primitive in a kernel of its own. The case is tried on each such beginning of the compiler, as on a
backend, and judged by the oracle. The first stage that shows the failure is to blame; where it has parts that can be
tried alone (an expansion, the kernel of a primitive) or left out (a pass), so are they.
"""

from torchstone.conformance.bisection.search import Blame, Tried, bisect
from torchstone.conformance.bisection.texts import stage_texts

__all__ = ["Blame", "Tried", "bisect", "stage_texts"]
