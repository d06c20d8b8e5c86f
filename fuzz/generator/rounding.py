"""What rounding does to an op: which ones jump, and which ones never round."""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """Return the op names in a text that separates them by white space."""
    return frozenset(text.split())


JUMPS = names(
    """
    angle atan2 ceil copysign div.floor_rounding div.trunc_rounding floor floor_divide fmod frac heaviside
    hardshrink nn.functional.hardshrink nn.functional.threshold nextafter remainder round sgn sign trunc argsort
    cummax cummin kthvalue max.reduction_with_dim median min.reduction_with_dim mode nanmedian sort topk logical_not
    logical_and logical_or logical_xor nn.functional.max_pool1d nn.functional.interpolate.nearest bool byte char int
    long short
    """
)
"""Ops whose result leaps where the operand moves by the last bit: they are given exact operands only.

An op that turns floating point into integers or booleans jumps too, whatever it is; that needs no list, the draft
sees it in the result.
"""

CUTS = names(
    """
    acos acosh asin asinh atan atanh log log10 log1p log2 pow float_power __rpow__ rsqrt sqrt linalg.matrix_power
    """
)
"""Ops with a branch cut in the complex plane, on which the sign of a rounded zero decides: they jump there."""

EXACT = names(
    """
    abs angle bfloat16 bool byte ceil cfloat cdouble chalf char clamp clamp_max clamp_min clone conj conj_physical
    copysign double fill float floor fmax fmin half heaviside imag int long max maximum min minimum nan_to_num neg
    nextafter positive real round sgn short sign trunc amax amin aminmax cummax cummin sort topk kthvalue mode
    nn.functional.relu nn.functional.relu6 nn.functional.hardtanh nn.functional.threshold nn.functional.hardshrink
    nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.pad where masked_fill gather index_select take
    take_along_dim scatter select_scatter slice_scatter diagonal_scatter index_fill index_copy
    nn.functional.embedding as_strided atleast_1d atleast_2d atleast_3d broadcast_to cat chunk column_stack
    constant_pad_nd contiguous diag diag_embed diagflat diagonal dstack expand expand_as flatten flip fliplr flipud
    hstack movedim narrow permute ravel repeat repeat_interleave reshape reshape_as roll rot90 select split
    split_with_sizes squeeze stack swapaxes t tensor_split tile transpose tril triu unbind unflatten unfold
    unsqueeze view view_as vstack full_like ones_like zeros_like new_full new_ones new_zeros view_as_real
    view_as_complex block_diag meshgrid unsafe_chunk unsafe_split hsplit vsplit dsplit broadcast_tensors
    """
)
"""Ops that move or choose elements, or round in the one way IEEE 754 prescribes: exact operands give exact results."""


def jumps(op: str, name: str) -> bool:
    """Say whether an op, given with and without its variant, is no continuous function of its operands."""
    return op in JUMPS or name in JUMPS


def cuts(op: str, name: str) -> bool:
    """Say whether an op, given with and without its variant, jumps for complex operands."""
    return jumps(op, name) or op in CUTS or name in CUTS


def exact(op: str, name: str) -> bool:
    """Say whether an op, given with and without its variant, computes without rounding."""
    return op in EXACT or name in EXACT
