"""What rounding does to an op: which never round, which round once, and which jump."""

from __future__ import annotations

from torchstone.conformance.oracle.op_traits.trait import Names, Trait, each

NEVER_ROUNDS = Trait(
    "Never rounds",
    Names.ATEN,
    each(
        """
        _efficientzerotensor _local_scalar_dense _to_copy _unique _unique2 _unsafe_view abs adaptive_max_pool2d
        adaptive_max_pool3d amax amin aminmax argmax argmin as_strided bitwise_and bitwise_not bitwise_or bitwise_xor
        bucketize cat ceil channel_shuffle clamp clamp_max clamp_min clone constant_pad_nd copy copysign cummax cummin
        diag_embed diagonal_scatter embedding empty empty_like empty_strided eq equal fill flip floor fmax fmin frac
        full full_like gather ge gt heaviside index index_copy index_fill index_put index_select isfinite isinf isnan
        isneginf isposinf item kthvalue le lift lift_fresh logical_and logical_not logical_or logical_xor lt masked_fill
        masked_scatter masked_select max max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices maximum
        median min minimum mode nan_to_num nanmedian ne neg new_empty new_full new_ones new_zeros nextafter nonzero ones
        ones_like permute pixel_shuffle pixel_unshuffle put real reflection_pad1d reflection_pad2d reflection_pad3d relu
        repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape resize roll rot90 round
        scalar_tensor scatter searchsorted select_scatter sgn sign signbit slice_scatter sort stack take topk tril
        tril_indices triu triu_indices trunc unbind unfold_copy unique_consecutive unique_dim unsafe_split view
        view_copy where zero zeros zeros_like prims::as_strided prims::broadcast_in_dim prims::collapse_view prims::conj
        prims::conj_physical prims::convert_element_type prims::copy_strided prims::device_put prims::iota
        prims::split_dim prims::squeeze prims::transpose prims::view_of
        """
    ),
    reason=(
        "They select, move, compare or fill in numbers, or round them to integers: the results are the same numbers"
        " in any precision. So are those of every view, and of every copy of a view, which PyTorch's schemas tell."
    ),
    effect=(
        "The rounding model leaves their results alone, so a number that lies exactly on a tie stays on it. The "
        "results of a program of nothing else are not forgiven for what inputs moved by one ULP would give. The "
        "fuzzer takes exact results of exact operands for operands of ops that jump."
    ),
    read_by=(
        "conformance.oracle.exactness.steps",
        "fuzz.generator.rounding",
    ),
)

NEVER_ROUNDS_BY_ANOTHER_NAME = Trait(
    "Never rounds, under a name that is no single operator of ATen",
    Names.PUBLIC,
    each(
        """
        angle atleast_1d atleast_2d atleast_3d bfloat16 block_diag bool broadcast_tensors byte cdouble cfloat chalf
        char column_stack conj_physical diag diagflat double dstack fliplr flipud float half hstack int long meshgrid
        nn.functional.hardshrink nn.functional.hardtanh nn.functional.max_pool1d nn.functional.max_pool2d
        nn.functional.pad nn.functional.relu6 nn.functional.threshold short take_along_dim tile unsafe_chunk vstack
        """
    ),
    reason="All their steps in ATen move, select or clamp numbers; the angle of a real number is 0 or pi.",
    effect="The fuzzer takes their results for exact, where their operands are.",
    read_by=("fuzz.generator.rounding",),
)

GIVES_INTEGERS_OR_BOOLEANS = Trait(
    "Gives integers or booleans",
    Names.ATEN,
    each(
        """
        argmax argmin bitwise_and bitwise_not bitwise_or bitwise_xor bucketize eq equal ge gt isfinite isinf isnan
        isneginf isposinf le logical_and logical_not logical_or logical_xor lt ne nonzero searchsorted signbit
        tril_indices triu_indices
        """
    ),
    reason="They compare, count, or work on bits: a last bit of an operand may decide between two integers.",
    effect="The fuzzer takes them for ops that jump, though they never round.",
    read_by=("fuzz.generator.rounding",),
)

ROUNDS_IN_THE_FUZZER = Trait(
    "Never rounds, but counts as rounding in the fuzzer",
    Names.PUBLIC,
    each(
        """
        frac full index_put linalg.diagonal masked_scatter masked_select median nanmedian
        nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d nn.functional.channel_shuffle
        nn.functional.pixel_shuffle nn.functional.pixel_unshuffle nn.functional.unfold ones put resolve_conj
        resolve_neg scalar_tensor slice to unfold_copy view_copy zeros
        """
    ),
    reason=(
        "A seed of the fuzzer stands for its programs, in reports and in reproducers, and these ops counted as "
        "rounding when the seeds were first used. Nothing else keeps them here: whoever may change what seeds stand"
        " for, may delete the row."
    ),
    effect="The fuzzer gives their results to no op that jumps.",
    read_by=("fuzz.generator.rounding",),
)

JUMPS = Trait(
    "Jumps",
    Names.PUBLIC,
    each(
        """
        angle atan2 ceil copysign div.floor_rounding div.trunc_rounding floor floor_divide fmod frac heaviside
        nn.functional.hardshrink nn.functional.threshold nextafter remainder round sgn sign trunc argsort cummax
        cummin kthvalue max.reduction_with_dim median min.reduction_with_dim mode nanmedian sort topk logical_not
        logical_and logical_or logical_xor nn.functional.max_pool1d nn.functional.interpolate.nearest bool byte char
        int long short unique unique_consecutive histogram histc
        """
    ),
    reason=(
        "Their results leap where an operand moves by its last bit: rounding to integers, signs, places of extremes, "
        "counts."
    ),
    effect=(
        "The fuzzer gives them exact operands only, or a last bit that is nobody's fault becomes a difference of "
        "one. The oracle has no list: it measures jumps, by runs whose roundings or inputs differ."
    ),
    read_by=("fuzz.generator.rounding",),
)

BRANCH_CUTS = Trait(
    "Has a branch cut in the complex plane",
    Names.PUBLIC,
    each(
        """
        acos acosh asin asinh atan atanh log log10 log1p log2 pow float_power __rpow__ rsqrt sqrt linalg.matrix_power
        """
    ),
    reason="On the cut the sign of a rounded zero decides which side a complex operand lies on.",
    effect="The fuzzer gives them no complex operands that were rounded.",
    read_by=("fuzz.generator.rounding",),
)

ONE_ROUNDING = Trait(
    "Rounds once",
    Names.ATEN,
    each("add sub rsub mul div sqrt reciprocal"),
    reason="IEEE 754 prescribes their results: the nearest number there is.",
    effect=(
        "A program of one of these on 16-bit numbers has to give the nearest number where eager does, not one "
        "within the tolerance."
    ),
    read_by=("conformance.oracle.exactness.single_rounding",),
)

CONVERSIONS = Trait(
    "Converts",
    Names.ATEN,
    each("_to_copy copy prims::convert_element_type"),
    reason="IEEE 754 prescribes conversions too.",
    effect=(
        "A program that converts to fewer bits, once, has to give the nearest number where eager does. A conversion to "
        "as many bits or more rounds nothing: the steps before it say how precise its numbers are."
    ),
    read_by=("conformance.oracle.exactness.narrowest_step", "conformance.oracle.exactness.single_rounding"),
)

ADDS_IN_FLOAT32 = Trait(
    "Adds up in float32",
    Names.ATEN,
    each(
        """
        sum mean nansum cumsum mm mv dot vdot bmm addmm addmv baddbmm _softmax _log_softmax native_layer_norm
        native_group_norm var var_mean std std_mean linalg_vector_norm logsumexp
        """
    ),
    reason=(
        "Eager adds up in float32 where operands have 16 bits, and rounds the result alone. A running sum of 16 "
        "bits loses all digits within some thousand terms, and a model that grants that grants anything."
    ),
    effect=(
        "The rounding model grants sums of 16-bit numbers the roundings of float32, and one of 16 bits for the result."
    ),
    read_by=("conformance.oracle.perturbation.rounding",),
)

TRANSCENDENTAL = Trait(
    "Is transcendental but at 0",
    Names.ATEN,
    each("cos cosh erf erfc exp expm1 sigmoid sin sinh tan tanh"),
    reason=(
        "At a number other than 0 their results are no fractions (the theorem of Lindemann and Weierstrass; the error"
        " function is none of its functions, but takes no such value that is known). A result with few digits, such as"
        " tanh(20) = 1, has been rounded."
    ),
    effect="The rounding model moves such a result as it moves others, so that what 1 - tanh(x) may be shows.",
    read_by=("conformance.oracle.perturbation.rounding",),
    waives=True,
)

STABLE_BY_NORM = Trait(
    "Is stable by the norm of its matrix",
    Names.ATEN,
    each(
        """
        _linalg_eigh _linalg_eigvals _linalg_svd linalg_eig prims::svd linalg_qr geqrf linalg_pinv linalg_lstsq
        linalg_lu linalg_lu_factor_ex linalg_inv_ex _linalg_solve_ex _linalg_det _linalg_slogdet linalg_ldl_factor_ex
        linalg_matrix_exp
        """
    ),
    reason=(
        "Elimination and orthogonal transformations mix the rows of a matrix: a small element beside a large one has "
        "an error of an ULP of the large one (LAPACK Users' Guide, error bounds), by whatever method."
    ),
    effect="The rounding model moves each element of the matrix, which is the first operand, by an ULP of the largest.",
    read_by=("conformance.oracle.perturbation.rounding",),
    waives=True,
)

OSCILLATES = Trait(
    "Oscillates around zero",
    Names.ATEN,
    each(
        """
        special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_spherical_bessel_j0
        special_airy_ai
        """,
        digamma="a recurrence up to 10, and a reflection",
        lgamma="a reflection of negative numbers, whose two logarithms cancel",
        polygamma="the terms of two poles, of orders that are even",
    ),
    reason=(
        "Whatever formula computes them adds up terms as large as the amplitude, which cancel beside a zero. "
        "Libraries state the error of these functions relative to the amplitude."
    ),
    effect="Beside their zeros results may be off by ULPs of the amplitude.",
    read_by=("conformance.oracle.perturbation.oscillatory_zeros",),
    waives=True,
)

RECURRENCE = Trait(
    "Follows a three-term recurrence",
    Names.ATEN,
    each(
        """
        special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
        special_chebyshev_polynomial_w special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
        special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_hermite_polynomial_h
        special_hermite_polynomial_he special_laguerre_polynomial_l special_legendre_polynomial_p
        """
    ),
    reason=(
        "Orthogonal polynomials are one step in ATen, and PyTorch does not decompose them. Terms of the recurrence "
        "cancel near a zero of the polynomial."
    ),
    effect="The rounding model rounds each step of the recurrence: near a zero, results may be off by what that shows.",
    read_by=(
        "conformance.oracle.overflow.conversions",
        "conformance.oracle.perturbation.decompositions",
        "conformance.oracle.reference.documented_formulas",
    ),
    waives=True,
)

NOT_DECOMPOSED = Trait(
    "Is not taken apart",
    Names.ATEN,
    each("cumsum.default cumprod.default"),
    reason="PyTorch's decomposition makes a matrix of each row: gigabytes, of rows that are long.",
    effect="The rounding model treats the op as one accumulation.",
    read_by=("conformance.oracle.perturbation.decompositions",),
)

ACCUMULATES = Trait(
    "Accumulates, among the primitives of PyTorch's references",
    Names.ATEN,
    each("prims::sum prims::prod prims::var prims::svd prims::fft_c2c prims::fft_c2r prims::fft_r2c"),
    reason="Operators of ATen carry tags that tell pointwise ops from others; these primitives carry none.",
    effect="The rounding model moves their operands, which stands for another order of the terms.",
    read_by=("conformance.oracle.perturbation.accumulation",),
)

SUMS_BAGS = Trait(
    "Gives integers beside its sums",
    Names.ATEN,
    each("_embedding_bag _embedding_bag_forward_only"),
    reason="The integers tell of the indices alone.",
    effect="The op counts as an accumulation, though not all it gives are floating numbers.",
    read_by=("conformance.oracle.perturbation.accumulation",),
)
