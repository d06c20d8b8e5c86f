"""Ops with more than one right answer: ties, signs and phases of vectors, factors of a matrix."""

from __future__ import annotations

from torchstone.conformance.oracle.op_traits.trait import Names, Trait, each

ORDERS_TIES = Trait(
    "Puts equal elements in any order",
    Names.ATEN,
    each("sort.default sort.stable topk.default"),
    reason="PyTorch promises an order of equal elements only where stable=True.",
    effect="A backend's indices are right if they are distinct and hold the values, and so is what follows from them.",
    read_by=("conformance.oracle.ambiguity.ties", "conformance.variants.rewritten"),
    waives=True,
)

PICKS_ONE_OF_TIES = Trait(
    "Gives the place of one among equal elements",
    Names.ATEN,
    each("kthvalue.default median.dim nanmedian.dim mode.default"),
    reason=(
        "PyTorch leaves open which of the equal elements it is. Eager's mode sorts by <, which is no order where "
        "there are NaN: it may give any element of such a row."
    ),
    effect="A backend's index is right if it holds the value, and so is what follows from it.",
    read_by=("conformance.oracle.ambiguity.ties", "conformance.variants.rewritten"),
    waives=True,
)

PICKS_ONE_OF_NAN = Trait(
    "Gives the place of one NaN in a window",
    Names.ATEN,
    each("max_pool2d_with_indices max_pool3d_with_indices"),
    reason=(
        "A maximum over NaN is NaN, and PyTorch does not say of which place: eager's kernels take the last NaN of a "
        "window, PyTorch's decompositions (where a release has them) and what Inductor makes of a pool, the first."
    ),
    effect="A backend is right beside eager, and beside eager with the first place of each window.",
    read_by=("conformance.oracle.ambiguity.ties",),
    waives=True,
)

OVERWRITES = Trait(
    "Writes one of several values to a place",
    Names.ATEN,
    {
        **each("as_strided_scatter index_copy", index_put="unless it accumulates", put="unless it accumulates"),
        **each(_index_put_impl="as index_put", _unsafe_index_put="as index_put"),
        **each("max_unpool2d max_unpool3d scatter.src scatter.src_out"),
    },
    reason=(
        "Where an index names a place twice, PyTorch's documentation calls it undefined, or nondeterministic, which of "
        "the values is there. Eager's kernels for the CPU leave the last, those for a GPU any."
    ),
    effect=(
        "A backend is right with any of the values that are written to a place, and with what follows from the first "
        "of them in all places."
    ),
    read_by=("conformance.oracle.ambiguity.overwrites",),
    waives=True,
)

SAVES_STATISTICS = Trait(
    "Saves statistics for a gradient, or none",
    Names.ATEN,
    each("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_no_update"),
    reason=(
        "In evaluation PyTorch's kernels for the CPU return none, and those for other devices, as its decomposition, "
        "the running mean and one by the root of the running variance plus eps."
    ),
    effect="A backend is right with either.",
    read_by=("conformance.oracle.ambiguity.saved_statistics",),
    waives=True,
)

SCALES_PRODUCT = Trait(
    "Multiplies a product by alpha or value",
    Names.ATEN,
    each("addbmm addcdiv addcmul addmm addmv baddbmm"),
    reason=(
        "For alpha=0 eager leaves the product out where BLAS computes it, and multiplies it where its own kernels do "
        "(16 bits, small batches). PyTorch's decompositions multiply. The documentation speaks of beta=0 alone. "
        "addcmul and addcdiv multiply by value=0 first in eager, and last in PyTorch's decomposition."
    ),
    effect=(
        "Where alpha is 0 and an element of the product is NaN or infinite, it may count, as NaN, or be left out. "
        "Where value is 0 and the product leaves the range, it may be NaN."
    ),
    read_by=("conformance.oracle.ambiguity.zero_factor",),
    waives=True,
)

PADS_WITH_ZEROS = Trait(
    "Convolves with zeros between its elements",
    Names.ATEN,
    each(convolution="where it is transposed"),
    reason=(
        "PyTorch documents a transposed convolution as one with implicit zero padding, and a stride as zeros between. "
        "A kernel that multiplies these by an infinite weight, or by NaN, has NaN, as those for a GPU do. Those for "
        "the CPU leave them out."
    ),
    effect="Where a weight that is NaN or infinite falls on such a zero, it may count, as NaN, or be left out.",
    read_by=("conformance.oracle.ambiguity.zero_factor",),
    waives=True,
)

INTERPOLATES = Trait(
    "Weighs neighbours, some of them by 0",
    Names.ATEN,
    each("upsample_linear1d upsample_bilinear2d upsample_trilinear3d"),
    reason=(
        "On a place of the input the one neighbour has the weight 1 and the others 0. Eager multiplies them, so that "
        "infinity times 0 is NaN. The documentation speaks of no weights, and a copy of the same size is as right."
    ),
    effect="A neighbour of weight 0 that is NaN or infinite may count, as NaN, or be left out.",
    read_by=("conformance.oracle.ambiguity.zero_factor",),
    waives=True,
)

ADDS_A_MULTIPLE = Trait(
    "Multiplies by alpha and adds",
    Names.ATEN,
    each("add dist rsub sub"),
    reason=(
        "Of complex numbers eager multiplies by alpha as by a complex number, also where it is 1: infinity times the "
        "other part, which is 0, is NaN. The documentation says input + alpha * other, of which each part is a sum."
    ),
    effect="Where a complex operand is infinite, the sum of the parts is right, and what follows from it.",
    read_by=("conformance.oracle.ambiguity.zero_factor",),
    waives=True,
)

SATURATES = Trait(
    "Cuts off sums of integers",
    Names.ATEN,
    each("_int_mm"),
    reason=(
        "On a processor without VNNI instructions, oneDNN adds two products of 8 bits in 16 bits, and stays at the end "
        "of their range: eager's numbers depend on the machine."
    ),
    effect="A backend is right beside eager, and beside eager with exact sums.",
    read_by=("conformance.oracle.ambiguity.saturation",),
    waives=True,
)

ROUNDS_TO_FLOAT8 = Trait(
    "Rounds a product to float8",
    Names.ATEN,
    each("_scaled_mm _scaled_mm_v2"),
    reason=(
        "Nothing is documented of products beyond the range. By machine and dtype, PyTorch's kernels give the largest "
        "number with the sign, or NaN or infinity, as a conversion does."
    ),
    effect="A product beyond the range may be the largest number, which float64's is, or what a conversion gives.",
    read_by=("conformance.oracle.ambiguity.saturation",),
    waives=True,
)

FREE_PHASES = Trait(
    "Gives vectors of free sign or phase, or values in a free order",
    Names.ATEN,
    each("_linalg_svd.default _linalg_eigh.default linalg_eig.default linalg_qr.default"),
    reason=(
        "U diag(S) Vh stays what it is when a column of U takes a phase and its row of Vh the opposite one. "
        "LAPACK's choice turns with the last bit of the input. PyTorch promises no order of the eigenvalues of a "
        "matrix that is not symmetric."
    ),
    effect=(
        "If a backend's vectors differ from eager's by signs or phases, or its eigenvalues by their order, eager and "
        "the float64 runs are computed again with these, and the backend is compared with them."
    ),
    read_by=("conformance.oracle.ambiguity.phases",),
    waives=True,
)

DIFFERENTIABLE_IN_PART = Trait(
    "Has a gradient of some matrices alone",
    Names.ATEN,
    each(
        "_linalg_svd _linalg_eigh linalg_eig",
        linalg_qr="where the leading columns are linearly independent",
        linalg_pinv="where the rank stays the same nearby",
        linalg_lstsq="as linalg_pinv",
    ),
    reason=(
        "PyTorch documents that gradients of singular vectors and eigenvectors are defined where the values are "
        "distinct, of Q and R where the leading columns are linearly independent, and of the pseudoinverse where the "
        "rank stays the same nearby. Elsewhere they divide by what rounding leaves of 0."
    ),
    effect="Where eager's gradients differ in their first digits when inputs move by one ULP, they are not asked for.",
    read_by=("conformance.variants.backward",),
    waives=True,
)

FACTORIZATIONS = Trait(
    "Factorizes a matrix",
    Names.PUBLIC,
    each(
        "linalg.svd svd svd_lowrank pca_lowrank linalg.eigh linalg.qr qr geqrf",
        **dict.fromkeys(("linalg.cholesky_ex", "linalg.inv_ex", "linalg.solve_ex"), "where info says so"),
        **dict.fromkeys(("linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex", "lu"), "which rows are the pivots"),
    ),
    reason=(
        "Two right factorizations differ in more than phases where singular values or eigenvalues are equal, or 0. "
        "Of several rows that may be the pivot, any may, and which is the largest of complex numbers is told by their "
        "modulus or by the sum of their parts. "
        "Where info says that the factor or the inverse could not be computed, it is of no matrix: eager leaves a "
        "part of it there on the CPU, and NaN on a GPU."
    ),
    effect=(
        "A program of one such call is right if the product of its factors is, and if they are as orthogonal as "
        "eager's; if no multiplier of an elimination is larger than 1; and if info is eager's (of an elimination: "
        "whether it is 0), and the matrix is where there is one."
    ),
    read_by=("conformance.oracle.ambiguity.factorizations",),
    waives=True,
)

PIVOTS = Trait(
    "Takes the largest row for the pivot",
    Names.ATEN,
    each("linalg_lu_factor_ex linalg_lu"),
    reason="Of several rows that may be the pivot, any may, and factors and gradients follow from which it is.",
    effect=(
        "A backend whose results tell the order of the rows is right beside eager by that order, if no multiplier is "
        "larger than 1."
    ),
    read_by=("conformance.oracle.ambiguity.pivots",),
    waives=True,
)

MANY_RIGHT_ANSWERS = Trait(
    "Has many right answers, or one that hangs on a threshold",
    Names.PUBLIC,
    each(
        """
        linalg.eig linalg.eigh linalg.svd svd linalg.qr qr geqrf linalg.householder_product ormqr linalg.lu lu
        linalg.lu_factor linalg.lu_factor_ex linalg.ldl_factor linalg.ldl_factor_ex linalg.lstsq linalg.pinv pinverse
        linalg.matrix_rank linalg.cond
        """
    ),
    reason="Factors of a matrix are not unique, and a rank hangs on singular values that are all rounding.",
    effect="The fuzzer does not call them: what follows from them in a program could not be compared.",
    read_by=("conformance.variants.rewritten", "fuzz.generator.families.samples"),
)
