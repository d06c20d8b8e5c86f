"""The passes for cases, in the order they run: the ones that remove most come first."""

from __future__ import annotations

from torchstone.conformance.program.case import Case
from torchstone.reducers.passes.bypass_calls import bypass_calls
from torchstone.reducers.passes.cut_to_inputs import cut_to_inputs
from torchstone.reducers.passes.drop_dims import drop_dims
from torchstone.reducers.passes.drop_outputs import drop_outputs
from torchstone.reducers.passes.merge_inputs import merge_inputs
from torchstone.reducers.passes.shrink_dims import shrink_dims
from torchstone.reducers.passes.simplify_dtypes import simplify_dtypes
from torchstone.reducers.passes.simplify_layouts import simplify_layouts
from torchstone.reducers.passes.simplify_literals import simplify_literals
from torchstone.reducers.passes.simplify_values import simplify_values
from torchstone.reducers.problem import Pass

PASSES: tuple[Pass[Case], ...] = (
    Pass("drop-outputs", drop_outputs),
    Pass("cut-to-inputs", cut_to_inputs),
    Pass("bypass-calls", bypass_calls),
    Pass("shrink-dims", shrink_dims),
    Pass("simplify-layouts", simplify_layouts),
    Pass("drop-dims", drop_dims),
    Pass("merge-inputs", merge_inputs),
    Pass("simplify-literals", simplify_literals),
    Pass("simplify-dtypes", simplify_dtypes),
    Pass("simplify-values", simplify_values),
)
