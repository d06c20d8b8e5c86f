"""Which names of PyTorch are no operators for data, and which private ones are.

A case is data from anywhere. What takes an address, a file or a function, trusts what its arguments say of memory, or
sets something for the process is denied, with the reason. Private names are denied unless they are in ``PRIVATE``.
"""

from __future__ import annotations

from collections.abc import Mapping

_PRIVATE = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _assert_async _assert_scalar _batch_norm_no_update _batch_norm_with_update
    _batch_norm_with_update_functional _cdist_forward _chunk_cat _conj _conj_copy _conj_physical _embedding_bag
    _embedding_bag_forward_only _fft_c2c _fft_c2r _fft_r2c _linalg_det _linalg_eigh _linalg_slogdet
    _linalg_solve_ex _linalg_svd _local_scalar_dense _log_softmax _log_softmax_backward_data _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _neg_view _neg_view_copy _pdist_forward
    _prelu_kernel _safe_softmax _softmax _softmax_backward_data _stack
    _standard_gamma _to_copy _trilinear _unique _unique2 _unsafe_index _unsafe_index_put _unsafe_masked_index
    _unsafe_masked_index_put_accumulate _unsafe_view _upsample_bicubic2d_aa _upsample_bilinear2d_aa
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
"""
PRIVATE_OPERATORS = frozenset(_PRIVATE.split())
"""Private operators of ATen that a case may call: PyTorch's op database has them, or its tracing writes them.

Each computes from the numbers of its operands alone. Those called unsafe check their indices and sizes on a CPU; what
others do not check, ``conformance.unsafe`` does.
"""

_DENIED_BY_REASON: Mapping[str, str] = {
    "takes memory at an address, of another object or of a file": "from_file from_numpy frombuffer",
    "gives a tensor other memory": "set set_ set_data data",
    "takes or gives a tensor whose numbers are pointers": """
        fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
        fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16
        fbgemm_pack_quantized_matrix quantized_gru quantized_gru_cell quantized_lstm quantized_lstm_cell
        quantized_rnn_relu_cell quantized_rnn_tanh_cell
    """,
    "takes the indices of a sparse tensor for what they are said to be": """
        sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor
        sparse_csr_tensor embedding_backward embedding_sparse_backward to_sparse_semi_structured
    """,
    "gives the indices of a sparse tensor to be written to": """
        ccol_indices col_indices crow_indices indices row_indices
    """,
    "calls a function, or keeps it to be called": "as_sparse_gradcheck backward boolean_dispatch",
    "is for one device's library, which other names reach": """
        to_mkldnn to_mkldnn_backward pin_memory record_stream
    """,
    "is no operator": """
        assert_int_or_pair get_gradients has_torch_function has_torch_function_unary has_torch_function_variadic
    """,
}
_LIBRARIES = ("cudnn_", "miopen_", "mkldnn_", "mps_", "lstm_mps")
DENIED: Mapping[str, str] = {name: reason for reason, names in _DENIED_BY_REASON.items() for name in names.split()}
"""What is denied under every prefix, and why."""


def denial_reason(name: str) -> str:
    """Why no case may call what is called so, under whatever prefix, or an empty string. Dunders are not asked for."""
    if name in DENIED:
        return DENIED[name]
    if name.startswith(_LIBRARIES):
        return "is for one device's library, which other names reach"
    if name.startswith("_") and name not in PRIVATE_OPERATORS:
        return "is private to PyTorch"
    return ""
