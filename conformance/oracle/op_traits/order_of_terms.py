"""Ops whose results depend on the order of their terms or factors where numbers leave the range of the dtype."""

from __future__ import annotations

from torchstone.conformance.oracle.op_traits.trait import Names, Trait, each

TRANSFORMS = Trait(
    "Is a Fourier transform",
    Names.ATEN,
    each("_fft_c2c _fft_c2r _fft_r2c prims::fft_c2c prims::fft_c2r prims::fft_r2c"),
    reason=(
        "Each algorithm multiplies by other roots of unity and leaves out others that are 0 or 1, normalizes before"
        " or after, and adds up in another order."
    ),
    effect=(
        "A term that is not finite may reach any result of its transform or miss it. The sizes of all terms of a "
        "transform count as one accumulation."
    ),
    read_by=("conformance.oracle.overflow.model", "conformance.oracle.perturbation.accumulation"),
    waives=True,
)

MOMENTS = Trait(
    "Computes a mean and a variance, or normalizes by them",
    Names.ATEN,
    each(
        """
        _batch_norm_with_update _native_batch_norm_legit _native_batch_norm_legit_functional
        _native_batch_norm_legit_no_training native_batch_norm native_group_norm native_layer_norm std std_mean var
        var_mean
        """
    ),
    reason=(
        "There are formulas in one pass and in two. PyTorch's own decompositions are among them, and differ from "
        "eager where numbers overflow."
    ),
    effect="Where the formulas overflow, infinity, NaN and what PyTorch's decompositions give are all right.",
    read_by=("conformance.oracle.overflow.model",),
    waives=True,
)

_SCALED = "alpha times the sum of the products, or the sum of alpha times each"
_OF_FLOAT8 = "the scales times the operands, or times the product"
SEVERAL_FORMULAS = Trait(
    "Is computed by several formulas",
    Names.ATEN,
    each(
        """
        _batch_norm_with_update _native_batch_norm_legit _native_batch_norm_legit_functional
        _native_batch_norm_legit_no_training native_batch_norm native_group_norm native_layer_norm
        """,
        _softmax_backward_data="(grad - sum) * output, or grad * output - sum * output",
        addbmm=_SCALED,
        addmm=_SCALED,
        addmv=_SCALED,
        baddbmm=_SCALED,
        _scaled_mm=_OF_FLOAT8,
        _scaled_mm_v2=_OF_FLOAT8,
        _scaled_dot_product_flash_attention_for_cpu="the scale times the products, or its root times each operand",
    ),
    reason=(
        "A norm is (x - mean) * rstd * weight + bias, or the line x * a + b of the same; factors are multiplied before "
        "terms are added up, or after. Eager itself takes one or another, by the layout of its operands."
    ),
    effect="What one of these formulas gives where its steps leave the range is right.",
    read_by=("conformance.oracle.overflow.formulas", "conformance.oracle.overflow.model"),
    waives=True,
)

MULTIPLIES_ELEMENTS = Trait(
    "Multiplies elements",
    Names.ATEN,
    each(
        "cumprod prod",
        index_reduce="where it reduces by prod",
        scatter="where it reduces by multiply",
        scatter_reduce="where it reduces by prod",
    ),
    reason="Factors may be multiplied in any order: those above 1 first, or those below.",
    effect="The product may overflow or underflow on the way where some order does, and is NaN where it may do both.",
    read_by=("conformance.oracle.overflow.model", "conformance.oracle.overflow.products"),
    waives=True,
)

STORES_PARTIAL_RESULTS = Trait(
    "Stores its partial results",
    Names.ATEN,
    each(
        """
        _index_put_impl _unsafe_index_put _unsafe_masked_index_put_accumulate cumprod index_add index_put index_reduce
        prod put scatter scatter_add scatter_reduce segment_reduce
        """
    ),
    reason=(
        "Terms and factors come one by one to the place of the result, which has its dtype: in eager most of these do. "
        "Other accumulations of 16-bit numbers are made in float32."
    ),
    effect="Partial results of float16 numbers leave the range where they leave that of float16, not of float32.",
    read_by=("conformance.oracle.perturbation.rounding",),
    waives=True,
)

AVERAGES_WINDOWS = Trait(
    "Averages windows",
    Names.ATEN,
    each(
        """
        avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d
        adaptive_avg_pool2d adaptive_avg_pool3d
        """
    ),
    reason="The sum of a window is divided after it was added up.",
    effect="The sum counts, not the mean, where it is asked whether an order of the terms overflows.",
    read_by=("conformance.oracle.overflow.model",),
    waives=True,
)

FUSED_MULTIPLY_ADD = Trait(
    "May be fused into a multiplication and addition",
    Names.ATEN,
    each(mul="product", add="sum", sub="sum"),
    reason=(
        "A fused multiply-add does not round the product, nor does the product overflow. Of float64 no wider run "
        "shows it."
    ),
    effect="Of float64, a product beyond the range may come back into it by the addition after it.",
    read_by=("conformance.oracle.overflow.model",),
    waives=True,
)

COMMUTES = Trait(
    "Gives the same with its operands exchanged",
    Names.PUBLIC,
    each(
        """
        add bitwise_and bitwise_or bitwise_xor eq fmax fmin gcd hypot lcm logical_and logical_or logical_xor maximum
        minimum mul ne
        """
    ),
    reason="The op is commutative, its rounding too.",
    effect="The variant `rewritten` exchanges two operands of one dtype.",
    read_by=("conformance.variants.rewrites",),
)

COMBINED = Trait(
    "Reduces parts as it does the whole",
    Names.PUBLIC,
    each(all="logical_and", amax="maximum", amin="minimum", any="logical_or", prod="mul", sum="add"),
    reason="The op is the repetition of an associative one, given here.",
    effect="The variant `rewritten` reduces two halves, and combines them by the op that is given here.",
    read_by=("conformance.variants.rewrites",),
)
