"""Which ops decide the sign of a zero or a NaN that they give, and which leave it open."""

from __future__ import annotations

from torchstone.conformance.oracle.op_traits.trait import Names, Trait, each

CHOOSES_AMONG_EQUALS = Trait(
    "Chooses among equal numbers",
    Names.ATEN,
    each(
        """
        _unique _unique2 adaptive_max_pool2d adaptive_max_pool3d amax amin aminmax argmax argmin clamp clamp_max
        clamp_min cummax cummin fmax fmin kthvalue max max_pool1d_with_indices max_pool2d_with_indices
        max_pool3d_with_indices maximum median min minimum mode nanmedian searchsorted sort topk unique_consecutive
        unique_dim
        """
    ),
    reason="0 and -0 are equal. Eager's maximum of the two is the first in its vectors and the second in its loops.",
    effect="Zeros of the results may have either sign.",
    read_by=("conformance.oracle.exactness.signed_zero",),
    waives=True,
)

WRITES_IN_ANY_ORDER = Trait(
    "Writes to places in any order",
    Names.ATEN,
    each("index_copy index_put masked_scatter put scatter"),
    reason="One place may be written to several times.",
    effect="Zeros of the results may have either sign.",
    read_by=("conformance.oracle.exactness.signed_zero",),
    waives=True,
)

KEEPS_SIGN_OF_ZERO = Trait(
    "Rounds, and keeps the sign of zero",
    Names.ATEN,
    each("add div hardtanh mul rsub sqrt sub"),
    reason=(
        "IEEE 754 prescribes the sign of a sum of two, a product, a quotient and a root, and clamping moves numbers. "
        "The other ops that keep it are those that never round, choose nothing among equals, and write each place once."
    ),
    effect="Where every step of a program keeps the signs of zeros, they have to be eager's.",
    read_by=("conformance.oracle.exactness.signed_zero",),
)

KEEPS_SIGN_OF_NAN = Trait(
    "Keeps the sign of NaN",
    Names.ATEN,
    each(
        """
        cat clone copysign diag_embed diagonal_scatter embedding fill flip gather index index_select lift lift_fresh
        masked_select pixel_shuffle pixel_unshuffle real reflection_pad1d reflection_pad2d reflection_pad3d repeat
        repeat_interleave replication_pad1d replication_pad2d replication_pad3d roll rot90 select_scatter signbit
        slice_scatter stack take tril triu unbind where
        """
    ),
    reason=(
        "They move bits, or read or set the sign bit, as PyTorch documents them. The sign of any other NaN is open: in"
        " eager it differs from vectors to loops, and from one processor to another. IEEE 754 has `neg` and `abs` on"
        " the sign bit too, but PyTorch documents a product by -1 and the absolute value, and PTX leaves open which"
        " NaN either gives."
    ),
    effect=(
        "Where every step of a program is one of these or a view, the signs of NaN have to be eager's; elsewhere "
        "they are not compared."
    ),
    read_by=("conformance.oracle.exactness.nan_sign",),
)

READS_SIGN_OF_NAN = Trait(
    "Reads the sign of NaN",
    Names.ATEN,
    each("signbit copysign"),
    reason="They make a number, or a boolean, of the sign that another operation left open.",
    effect="Where that sign was open, what follows from either is right.",
    read_by=("conformance.oracle.exactness.nan_sign",),
    waives=True,
)
