"""Ops whose documentation or schema does not tell what they do with memory."""

from __future__ import annotations

from torchstone.conformance.oracle.op_traits.trait import Names, Trait, each

_UNSAFE = "safe as long as either the operand or the result is not written to"

VIEW_OR_COPY = Trait(
    "Returns a view or a copy",
    Names.PUBLIC,
    each(
        "contiguous flatten ravel reshape reshape_as resolve_conj resolve_neg to",
        **dict.fromkeys(("unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"), _UNSAFE),
    ),
    reason="The documentation leaves open whether the result shares memory with the operand.",
    effect=(
        "A backend's result may share memory with an input where eager's does not. The fuzzer writes to neither of "
        "them afterwards."
    ),
    read_by=("conformance.execution.repeatability", "fuzz.generator.draft"),
    waives=True,
)

RUNS_IN_ANY_RUNTIME = Trait(
    "Allocates, copies or writes back",
    Names.ATEN,
    each("clone contiguous copy empty_like fill resolve_conj resolve_neg set to zero zeros"),
    reason="The runtime of any backend on tensors of PyTorch may do this by PyTorch's kernels.",
    effect="Seeing such an op run in eager's kernels makes no pass a fallback.",
    read_by=("conformance.execution.provenance",),
    waives=True,
)

COMPUTES_NOTHING = Trait(
    "Computes nothing",
    Names.ATEN,
    each("_unsafe_view as_strided_ is_nonzero item _local_scalar_dense resize_ set_"),
    reason="Views, sizes and reads whose schemas do not tell it.",
    effect="Seeing such an op run in eager's kernels makes no pass a fallback.",
    read_by=("conformance.backends.eager_ops",),
    waives=True,
)

READS_THE_LAYOUT = Trait(
    "Reads how its operand lies in memory",
    Names.PUBLIC,
    each("as_strided as_strided_scatter as_strided_copy resize resize_as"),
    reason="Strides and offsets are among its arguments, or it takes what lies in memory behind its operand.",
    effect="What eager gives for the same numbers elsewhere in memory is not asked of its program.",
    read_by=(
        "conformance.controls.programs",
        "conformance.oracle.reference.other_kernels",
        "conformance.oracle.reference.runs",
        "conformance.variants.rewrites",
    ),
)
