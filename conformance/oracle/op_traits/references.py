"""Ops that another reference than eager's float64 kernel is taken for."""

from __future__ import annotations

from torchstone.conformance.oracle.op_traits.trait import Names, Trait, each

IN_SCIPY = Trait(
    "Is a function of SciPy",
    Names.ATEN,
    each(
        "digamma polygamma erf erfc erfinv i0",
        lgamma="gammaln",
        special_ndtri="ndtri",
        special_log_ndtr="log_ndtr",
        special_zeta="zeta",
        special_i0e="i0e",
        special_i1="i1",
        special_i1e="i1e",
        special_bessel_j0="j0",
        special_bessel_j1="j1",
        special_bessel_y0="y0",
        special_bessel_y1="y1",
        special_modified_bessel_i0="i0",
        special_modified_bessel_i1="i1",
        special_modified_bessel_k0="k0",
        special_modified_bessel_k1="k1",
        special_scaled_modified_bessel_k0="k0e",
        special_scaled_modified_bessel_k1="k1e",
    ),
    reason=(
        "Eager computes some of them with few digits, in float64 too. SciPy's are independent of PyTorch's, and "
        "right to a few ULPs."
    ),
    effect=(
        "What float64 does not absolve is compared with a float64 run that takes SciPy's values as well. Given is "
        "SciPy's name where it is another."
    ),
    read_by=("conformance.oracle.reference.by_scipy",),
    waives=True,
)

_BY_MPMATH = "mpmath's, of positive numbers up to 1,000; of others SciPy's"
BY_SCIPY = Trait(
    "Is a formula of functions of SciPy or NumPy",
    Names.ATEN,
    each(
        acos="NumPy's",
        log1p="NumPy's",
        logaddexp="the larger + log1p(exp(the smaller - the larger))",
        logcumsumexp="the same, of all before and each",
        igamma=_BY_MPMATH,
        igammac=_BY_MPMATH,
        gelu="x * ndtr(x); of the approximation, x * expit(2 u) for 0.5 * x * (1 + tanh(u))",
        special_erfcx="SciPy's; of negative numbers exp(x * x) * erfc(x), with the digits that x * x is rounded off",
    ),
    reason=(
        "Eager's GELU adds 1 to a number near -1: it has few digits of the tail, in float64 too. Its acos of a complex "
        "number beside 1 is a difference from pi / 2, of which half the digits are left. Its log1p of a "
        "subnormal complex number is NaN, and so are logarithms of sums of exponentials that it adds up by log1p. The "
        "incomplete gamma functions are Cephes' in eager and in SciPy: the exponential of a difference, off by as "
        "many ULPs as the difference is large. So is erfcx of negative numbers, by the exponential of their square."
    ),
    effect="As for the functions of SciPy.",
    read_by=("conformance.oracle.reference.by_scipy",),
    waives=True,
)

GROWS_WITHOUT_END = Trait(
    "Is infinite at infinity, and NaN in eager",
    Names.ATEN,
    each(
        "i0 special_modified_bessel_i0",
        special_i1="with the sign of x",
        special_modified_bessel_i1="with the sign of x",
    ),
    reason=(
        "The modified Bessel functions of the first kind are exp(x) / sqrt(x) by a series, as Cephes has them, and "
        "SciPy: at infinity that is infinity by infinity. The limit is infinity, which CUDA's library gives."
    ),
    effect="The float64 run has the limit: a backend is right with it, as with eager's NaN.",
    read_by=("conformance.oracle.reference.limits",),
    waives=True,
)

NO_REFERENCE_IN_FLOAT64 = Trait(
    "Has no reference in float64",
    Names.PUBLIC,
    each("special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1"),
    reason=(
        "Sums of large terms that cancel between the zeros: a fused multiply-add in eager's own build moves the "
        "result by tens of ULPs, and in float64 no wider run can say which is right."
    ),
    effect="A departure from the tolerance of float64.",
    read_by=("conformance.oracle.tolerances",),
    waives=True,
)

WIDENED_CASTS = Trait(
    "Casts to fewer bits",
    Names.PUBLIC,
    each(half="double", float="double", bfloat16="double", chalf="cdouble", cfloat="cdouble"),
    reason="The float64 run of a program rounds nothing to fewer bits.",
    effect="The float64 run calls the method that is given here.",
    read_by=("conformance.oracle.reference.widen",),
)

FLOAT32_ARGUMENTS = Trait(
    "Takes an argument in float32 at most",
    Names.ATEN,
    each(
        fake_quantize_per_channel_affine_cachemask="scale zero_point",
        _fused_moving_avg_obs_fq_helper="self running_min running_max scale",
    ),
    reason="Its kernels have no float64 for these: what is quantized comes to a step of a grid in any case.",
    effect="The float64 run gives it the arguments that are named here in float32.",
    read_by=("conformance.oracle.reference.without_float64",),
)

WITHOUT_FLOAT64 = Trait(
    "Takes no float64 in eager",
    Names.ATEN,
    each(
        _scaled_mm="(self * scale_a) @ (mat2 * scale_b) + bias; divided by scale_result where float8_e4m3fn or "
        "float8_e5m2 is named for the result",
        _scaled_mm_v2="as _scaled_mm, without scale_result",
        _grouped_mm="the product of each group, whose rows, columns or inner dim offs tells",
    ),
    reason=(
        "Its kernels are for float8, or for float32 and 16 bits. They accumulate in float32, and round the result once."
    ),
    effect=(
        "The float64 run computes the formula that is given here, and is told the dtypes that the program names. The "
        "rounding model grants each step of it a rounding of float32, and the result one of its own dtype. Operands "
        "are known to an ULP of float32."
    ),
    read_by=(
        "conformance.oracle.exactness.narrowest_step",
        "conformance.oracle.perturbation.rounding",
        "conformance.oracle.reference.widen",
        "conformance.oracle.reference.without_float64",
    ),
)

DEFAULTS_BY_DTYPE = Trait(
    "Has a default that hangs on the dtype",
    Names.ATEN,
    each(
        linalg_pinv="rtol: eps * max(rows, columns)",
        linalg_matrix_rank="rtol: eps * max(rows, columns)",
        linalg_lstsq="rcond: eps * max(rows, columns)",
        rms_norm="eps: eps",
        _fused_rms_norm="eps: eps",
        nan_to_num="posinf and neginf: the largest and the lowest number",
    ),
    reason="PyTorch documents these defaults in terms of finfo of the operand's dtype.",
    effect="The float64 run is given the default of eager's dtype: with its own it computes another function.",
    read_by=("conformance.oracle.reference.dtype_defaults",),
)
