"""From a dotted public PyTorch name to the callable it names, and back, within an allowlist.

A case file is data from anywhere, so a name in it may reach nothing but tensor operators. A name resolves only when it
sits in one of ``NAMESPACES``, passes that namespace's rule and is not denied, or is an op of the user's own
(``conformance.custom.registration``). Denied, with the reason, is what takes an
address, a file or a function, what trusts its arguments about memory, and what changes a setting of the process.
Private names are denied unless they are in ``PRIVATE_OPERATORS``.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.masked
import torch.signal
import torch.sparse

from torchstone.compiler._torch.operators import (
    OpOverload,
    OpOverloadPacket,
    functions_of_torch,
    qualified_name,
    registered_names,
    schema_of,
)
from torchstone.compiler.diagnostics import did_you_mean
from torchstone.conformance.custom import registration
from torchstone.conformance.program import control_flow
from torchstone.conformance.program.literals import ProgramError

NAMESPACES: dict[str, Any] = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.functional": torch.nn.functional,
    "torch.linalg": torch.linalg,
    "torch.special": torch.special,
    "torch.fft": torch.fft,
    "torch.masked": torch.masked,
    "torch.sparse": torch.sparse,
    "torch.signal.windows": torch.signal.windows,
    "torch.autograd": torch.autograd,  # `grad` alone
    "torch.ops.aten": torch.ops.aten,
}

PROPERTIES = ("T", "H", "mT", "mH", "real", "imag")
CASTS = ("bfloat16", "bool", "byte", "cdouble", "cfloat", "chalf", "char", "double", "float", "half", "int", "long")
_TENSOR_EXTRA = frozenset({*CASTS, "short", "type", "unique", "new_tensor"})
_MATRICES = ("dsmm", "hsmm", "lu", "pca_lowrank", "saddmm", "spmm", "svd_lowrank")
_TORCH_EXTRA = frozenset({"as_tensor", "asarray", "manual_seed", "tensor", *_MATRICES, *torch.functional.__all__})
_ARITHMETIC = """
    abs add and div eq floordiv ge gt iadd iand idiv ifloordiv ilshift imod imul invert ior ipow irshift isub itruediv
    ixor le lshift lt matmul mod mul ne neg or pos pow radd rand rdiv rfloordiv rlshift rmatmul rmod rmul ror rpow
    rrshift rshift rsub rtruediv rxor sub truediv xor
"""
_DUNDERS: dict[str, Callable[..., Any]] = {
    f"__{name}__": getattr(torch.Tensor, f"__{name}__") for name in _ARITHMETIC.split()
} | {"__getitem__": operator.getitem, "__setitem__": operator.setitem}


@functools.cache
def _torch_functions() -> frozenset[str]:
    """Names of the operators that are functions of ``torch`` itself."""
    return frozenset(functions_of_torch())


@functools.cache
def _operator_names() -> frozenset[str]:
    """Names of the ATen operators the dispatcher knows. TorchScript's own (``aten::save`` …) are not among them."""
    names = registered_names()
    return frozenset(name.removeprefix("aten::").split(".")[0] for name in names if name.startswith("aten::"))


def _is_operator_function(value: Any) -> bool:
    """Whether a member of a namespace of Python functions is itself one (not a class, a module, a re-export)."""
    if isinstance(value, types.BuiltinFunctionType):
        return True
    if not inspect.isfunction(value):
        return False
    home = value.__module__ or ""
    return home in ("torch.nn.functional", "torch.functional") or home.startswith(
        ("torch.masked", "torch.signal.windows", "torch.sparse", "torch.fft", "torch.special", "torch.linalg")
    )


def _lookup_aten(rest: str) -> Callable[..., Any] | None:
    name, dot, overload = rest.partition(".")
    if name not in _operator_names() or (dot and not overload) or (name not in _DUNDERS and denial_reason(name)):
        return None
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or (overload and overload not in packet.overloads()):
        return None
    return getattr(packet, overload) if overload else packet


def lookup(target: str) -> Callable[..., Any] | None:
    """Like ``resolve``, with ``None`` for a name that is unknown or forbidden."""
    return _of_pytorch(target) or registration.lookup(target)  # what is the user's own may come later: it is not kept


@functools.cache
def _of_pytorch(target: str) -> Callable[..., Any] | None:
    found = _lookup(target)
    return found if callable(found) else None


def _lookup(target: str) -> Callable[..., Any] | None:
    if target in control_flow.FUNCTIONS:
        return control_flow.FUNCTIONS[target]
    if target.startswith("torch.ops.aten."):
        return _lookup_aten(target.removeprefix("torch.ops.aten."))
    prefix, _, name = target.rpartition(".")
    namespace = NAMESPACES.get(prefix)
    if namespace is None or not name.isidentifier():
        return None
    if name.startswith("__"):
        return _DUNDERS.get(name) if prefix == "torch.Tensor" else None
    if denial_reason(name):
        return None
    if prefix == "torch.Tensor":
        if name in PROPERTIES:
            return operator.attrgetter(name)
        known = name in _TENSOR_EXTRA or name in _operator_names()
        return getattr(namespace, name, None) if known else None
    value = getattr(namespace, name, None)
    if prefix == "torch.autograd":
        return value if name == "grad" else None
    if prefix == "torch":
        known = name in _TORCH_EXTRA or (name in _torch_functions() and name in _operator_names())
        return value if known else None
    return value if _is_operator_function(value) else None


def resolve(target: str) -> Callable[..., Any]:
    """The callable a dotted name stands for, e.g. ``torch.nn.functional.softmax``, ``torch.ops.aten.add.Tensor``.

    Raises ``ProgramError`` when the name is outside the allowlist or nothing bears it.
    """
    found = lookup(target)
    if found is not None:
        return found
    lacking = f": PyTorch {torch.__version__} has none of this name" if _is_missing(target) else ""
    why = _reason(target) or registration.why_unknown(target) or lacking + _suggest(target)
    raise ProgramError(f"unknown or forbidden target {target!r}{why}")


def _is_missing(target: str) -> bool:
    """Whether this release of PyTorch has nothing of a name where other releases may have an operator."""
    if target.startswith("torch.ops.aten."):
        name, _, overload = target.removeprefix("torch.ops.aten.").partition(".")
        packet = getattr(torch.ops.aten, name, None)
        missing = packet is None or (overload.isidentifier() and overload not in packet.overloads())
        return name.isidentifier() and not (denial_reason(name) or overload.startswith("__")) and missing
    prefix, _, name = target.rpartition(".")
    return (
        prefix in NAMESPACES
        and name.isidentifier()
        and not denial_reason(name)
        and not hasattr(NAMESPACES[prefix], name)
    )


def _reason(target: str) -> str:
    prefix, _, name = target.rpartition(".")
    if prefix.startswith("torch.ops.aten."):
        prefix, name = "torch.ops.aten", target.split(".")[3]
    why = denial_reason(name) if prefix in NAMESPACES else ""
    return f": it {why}" if why else ""


def _suggest(target: str) -> str:
    prefix, _, name = target.rpartition(".")
    if prefix not in NAMESPACES or prefix == "torch.ops.aten" or name.startswith("_"):
        return ""
    public = [f"{prefix}.{name}" for name in dir(NAMESPACES[prefix]) if not name.startswith("_")]
    return did_you_mean(target, [candidate for candidate in public if lookup(candidate) is not None])


@functools.cache
def _names_by_identity() -> dict[int, str]:
    """``id`` of each allowed callable to its shortest public name. The namespaces keep the callables alive."""
    names: dict[int, str] = {}
    for prefix, namespace in NAMESPACES.items():
        if prefix == "torch.ops.aten":
            continue
        for name in dir(namespace):
            target = f"{prefix}.{name}"
            value = lookup(target)
            if value is not None and not isinstance(value, operator.attrgetter):
                names.setdefault(id(value), target)
    return names


def name_of(function: Any) -> str | None:
    """The public name that resolves to this function, or ``None``. Takes property getters and slots as well."""
    if isinstance(function, OpOverload):
        schema = schema_of(function)
        candidate = f"torch.ops.{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
    elif isinstance(function, OpOverloadPacket):
        candidate = f"torch.ops.{qualified_name(function).replace('::', '.')}"
    elif function is torch.Tensor.__getitem__ or function is torch.Tensor.__setitem__:
        return f"torch.Tensor.{function.__name__}"
    elif getattr(function, "__name__", "") == "__get__":
        name = getattr(function.__self__, "__name__", "")
        return f"torch.Tensor.{name}" if name in PROPERTIES else None
    else:
        candidate = _names_by_identity().get(id(function), "")
    if not candidate.startswith("torch."):
        return None
    return candidate if lookup(candidate) is function else None


_PRIVATE = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _assert_async _assert_scalar _batch_norm_no_update _batch_norm_with_update
    _batch_norm_with_update_functional _cdist_forward _chunk_cat _conj _conj_copy _conj_physical _embedding_bag
    _embedding_bag_forward_only _fft_c2c _fft_c2r _fft_r2c _grouped_mm _int_mm _linalg_det _linalg_eigh _linalg_slogdet
    _linalg_solve_ex _linalg_svd _local_scalar_dense _log_softmax _log_softmax_backward_data _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _neg_view _neg_view_copy _pdist_forward
    _prelu_kernel _safe_softmax _scaled_mm _scaled_mm_v2 _softmax _softmax_backward_data _stack _standard_gamma _to_copy
    _trilinear _unique _unique2 _unsafe_index _unsafe_index_put _unsafe_masked_index _unsafe_masked_index_put_accumulate
    _unsafe_view _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d _weight_norm
"""
PRIVATE_OPERATORS = frozenset(_PRIVATE.split())
"""Private operators of ATen that a case may call: PyTorch's op database has them, its tracing writes them, or
its public functions call them.

Each computes from the numbers of its operands alone. Those called unsafe check their indices and sizes on a CPU; what
others do not check, ``execution.undefined_behavior`` does.
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
