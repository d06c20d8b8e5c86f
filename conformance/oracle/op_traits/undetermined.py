"""Ops whose results the inputs do not determine: random numbers, memory nobody wrote to, undefined behavior."""

from __future__ import annotations

from torchstone.conformance.oracle.op_traits import rounding
from torchstone.conformance.oracle.op_traits.trait import Names, Trait, each

_IN_NO_GROUP = "rows or columns that are in no group"

UNINITIALIZED = Trait(
    "Returns memory that nobody wrote to",
    Names.PUBLIC,
    each(
        "empty empty_like empty_permuted empty_strided new_empty new_empty_strided",
        resize="holds the old numbers as well",
        resize_as="holds the old numbers as well",
    ),
    reason="The numbers are what lay there before.",
    effect=(
        "Shapes and dtypes are compared, and the numbers that do not depend on that memory. A program of several "
        "calls of which all numbers do is untested. The fuzzer does not call them."
    ),
    read_by=(
        "conformance.oracle.exactness.signed_zero",
        "conformance.oracle.random.unwritten",
        "conformance.oracle.reference.other_kernels",
        "fuzz.generator.families.samples",
    ),
    waives=True,
)

LEAVES_PARTS_UNWRITTEN = Trait(
    "Returns memory that it writes to in part",
    Names.PUBLIC,
    each(_grouped_mm=_IN_NO_GROUP, **{"nn.functional.grouped_mm": _IN_NO_GROUP}),
    reason="PyTorch documents that what is in no group is ignored. Eager's kernel leaves the result as the memory was.",
    effect="The numbers that do not depend on that memory are compared.",
    read_by=("conformance.oracle.random.unwritten",),
    waives=True,
)

DRAWS_RANDOM_NUMBERS = Trait(
    "Draws random numbers",
    Names.PUBLIC,
    each(
        """
        bernoulli cauchy exponential geometric log_normal multinomial normal uniform rand_like randint randint_like
        randn randn_like native_dropout_backward nn.functional.alpha_dropout nn.functional.dropout
        nn.functional.dropout2d nn.functional.dropout3d nn.functional.feature_alpha_dropout nn.functional.rrelu
        nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
        nn.functional.multi_head_attention_forward svd_lowrank pca_lowrank
        """
    ),
    reason="They draw by default, or where an argument that samples of the op database set says so.",
    effect=(
        "The fuzzer calls those that it knows how to, not as the samples do. The oracle has no list: it sees whether "
        "eager took numbers from the generator."
    ),
    read_by=("fuzz.generator.families.samples", "fuzz.generator.rules"),
)

LOSES_NAN = Trait(
    "Loses or makes a NaN in eager",
    Names.ATEN,
    each(
        "_scaled_dot_product_flash_attention_for_cpu native_group_norm native_layer_norm multi_margin_loss "
        "multilabel_margin_loss_forward addmm addbmm baddbmm",
        **rounding.RECURRENCE.ops,
    ),
    reason=(
        "The fused kernel of attention takes a row whose largest logit compares as smaller than -inf for one that "
        "is masked entirely, and multiplies the -inf of a causal mask by the scale: one of 0, or below, makes NaN. "
        "The polynomials of NaN, from degree 2 on, leave their loop before its first step and "
        "return a variable that was never set. The mean that a norm of no elements returns is 0 / 0, and 0 in eager. "
        "A margin loss adds up max(0, margin - difference), and leaves out in eager what is not above 0. A "
        "library for products of matrices takes no notice of an alpha of NaN, depending on their sizes."
    ),
    effect=(
        "Where the documented formula gives NaN and eager does not, a backend's NaN is ill-conditioned, not a "
        "mismatch. So is its number, where the formula gives that and eager NaN."
    ),
    read_by=("conformance.oracle.reference.documented_formulas",),
    waives=True,
)

UNDEFINED_BEHAVIOR = Trait(
    "Has undefined behavior in eager",
    Names.ATEN,
    each(
        segment_reduce="lengths or offsets that go beyond the data",
        max_pool2d_with_indices_backward="an index that is none of the input's",
        max_pool3d_with_indices_backward="an index that is none of the input's",
        adaptive_max_pool2d_backward="an index that is none of the input's",
        adaptive_max_pool3d_backward="an index that is none of the input's",
        _embedding_bag="a last offset that is not the number of indices",
        _embedding_bag_forward_only="a last offset that is not the number of indices",
        lu_unpack="pivots that are none of such a matrix",
        histc="a range so wide that a place in it is no finite number of the dtype, or of no width",
        histogram="a range so wide that a place in it is no finite number of the dtype, or of no width",
        _histogramdd_from_bin_cts="a range so wide that a place in it is no finite number of the dtype, or of no width",
        multi_margin_loss="no rows: the loss is memory that nobody wrote to",
        multilabel_margin_loss_forward="no rows: the loss is memory that nobody wrote to",
        native_batch_norm="a parameter of another size than the channels, or running statistics that share memory",
        _native_batch_norm_legit="as native_batch_norm",
        _native_batch_norm_legit_functional="as native_batch_norm",
        _native_batch_norm_legit_no_training="as native_batch_norm",
        _batch_norm_with_update="as native_batch_norm",
        _batch_norm_with_update_functional="as native_batch_norm",
        _batch_norm_no_update="as native_batch_norm",
        _chunk_cat="tensors without a dim: eager reads sizes that there are none of",
        _ctc_loss="a target that is none of the classes",
        div="the least integer of 32 or 64 bits by -1, truncated: the processor ends the process",
        div_="as div",
        lcm="the least integer of 32 or 64 bits, which has no absolute value: it may end the process",
        lcm_="as lcm",
        _scaled_mm="a dtype of the result that is no floating one",
        _scaled_mm_v2="as _scaled_mm",
        _grouped_mm="ends of groups that fall, or lie outside of the operand",
        _fft_c2r="three dims or more, one of them long",
        _unsafe_masked_index="an index out of range that the mask does not leave out",
        _unsafe_masked_index_put_accumulate="as _unsafe_masked_index",
        binomial="a count of NaN: eager does not return",
        fake_quantize_per_channel_affine_cachemask="a quotient that no integer of 64 bits holds",
        logit_backward="an eps of NaN",
        grid_sampler_2d="a mode that there is none of: the result is memory that nobody wrote to",
        grid_sampler_3d="as grid_sampler_2d, and a place that is no finite number, of 16 bits",
        grid_sampler_2d_backward="a place that is no finite number, of 16 bits or where it is clipped or reflected",
        grid_sampler_3d_backward="a place that is no finite number, of 16 bits",
        special_chebyshev_polynomial_v="a degree n whose 2 n + 1 is none of 64 bits",
        special_chebyshev_polynomial_w="as special_chebyshev_polynomial_v",
        special_shifted_chebyshev_polynomial_v="as special_chebyshev_polynomial_v",
        special_shifted_chebyshev_polynomial_w="as special_chebyshev_polynomial_v",
    ),
    reason=(
        "Eager's kernel reads or writes out of bounds, returns memory that nobody wrote to, leaves the range of signed "
        "integers, ends the process, or never returns, for such operands. The documentation of grouped_mm has ends of "
        "groups increase: eager's kernel for the CPU then multiplies some rows twice, and one for a GPU reads out of "
        "bounds. The mask of _unsafe_masked_index is to leave out what is out of range: eager's kernel takes the "
        "nearest index, and a compiler reads what lies there."
    ),
    effect="The case is untested.",
    read_by=("conformance.execution.undefined_behavior",),
    waives=True,
)

FINITE_MATRICES = Trait(
    "Guarantees nothing for a matrix that is not finite",
    Names.ATEN,
    each(
        """
        _linalg_det _linalg_eigh _linalg_eigvals _linalg_slogdet _linalg_solve_ex _linalg_svd cholesky
        cholesky_inverse cholesky_solve geqrf linalg_cholesky_ex linalg_eig linalg_eigvals linalg_householder_product
        linalg_inv_ex linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor_ex linalg_lu_solve
        linalg_matrix_exp linalg_pinv linalg_qr linalg_solve_triangular ormqr triangular_solve
        """
    ),
    reason=(
        "PyTorch documents (Numerical accuracy, Linear algebra) that for inf or NaN neither its libraries nor it "
        "guarantee anything: they may return numbers, raise or end the process. Eager's eigvals corrupts memory."
    ),
    effect="The case is untested.",
    read_by=("conformance.execution.undefined_behavior",),
    waives=True,
)

ENDS_THE_PROCESS = Trait(
    "Ends the process for some operands",
    Names.PUBLIC,
    each("div divide lcm"),
    reason=(
        "A processor has no quotient of the least integer by -1. Under a mode that looks at operands these give the "
        "bits that they give without one, as not every function with undefined behavior does."
    ),
    effect="The generator looks at the operands before it calls them.",
    read_by=("conformance.execution.undefined_behavior",),
)

CALLS_UNDEFINED_BEHAVIOR = Trait(
    "May call an operator with undefined behavior",
    Names.PUBLIC,
    each(
        """
        _segment_reduce histogramdd ctc_loss nn.functional.ctc_loss nn.functional.batch_norm
        nn.functional.embedding_bag nn.functional.grouped_mm logit special.logit fake_quantize_per_channel_affine
        nn.functional.multilabel_margin_loss grid_sampler nn.functional.grid_sample special.chebyshev_polynomial_v
        special.chebyshev_polynomial_w special.shifted_chebyshev_polynomial_v special.shifted_chebyshev_polynomial_w
        fft.irfft2 fft.irfftn det logdet
        slogdet inverse pinverse svd qr lu lu_solve orgqr matrix_exp svd_lowrank pca_lowrank norm nn.functional.pad
        divide
        """,
        lstm="oneDNN's kernel does not look at sizes that PyTorch's own refuses",
    ),
    reason="These functions call such operators under another name, as those of torch.linalg do.",
    effect=(
        "Programs that call them, or those operators, are run once under a mode that looks at their operands; "
        "others are not."
    ),
    read_by=("conformance.execution.undefined_behavior",),
)
