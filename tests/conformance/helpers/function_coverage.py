"""Which public functions no source asks, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torchstone.compiler._torch.operators import schema_of
from torchstone.conformance.program.call_targets import NAMESPACES, PROPERTIES, lookup
from torchstone.conformance.sources import functions, opinfo

_BY_REASON = {
    "is of sparse tensors, which no program holds": """
        ccol_indices_copy coalesce col_indices_copy crow_indices_copy dsmm hsmm hspmm indices_copy native_norm
        resize_as_sparse_ row_indices_copy saddmm smm sparse_mask sparse_resize_ sparse_resize_and_clear_ spdiags spmm
        spsolve sspaddmm to_dense to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr values values_copy
    """,
    "is of quantized tensors, which no program holds": """
        dequantize empty_quantized int_repr q_per_channel_scales q_per_channel_zero_points quantize_per_channel
        quantize_per_tensor quantize_per_tensor_dynamic quantized_batch_norm quantized_max_pool1d quantized_max_pool2d
        quantized_max_pool3d
    """,
    "is of nested or masked tensors, which no program holds": """
        as_masked_tensor is_masked_tensor masked_tensor to_padded_tensor
    """,
    "has no kernel for a CPU": """
        batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats
        batch_norm_gather_stats_with_counts batch_norm_stats scaled_grouped_mm
    """,
    "reads the numbers of its operand by their address, which nothing captures": "choose_qparams_optimized",
    "gives what lies in memory around its operand": "slice_inverse",
    "takes functions: control flow has cases of its own": "while_loop",
    "computes nothing": "manual_seed requires_grad_",
    "is Python's way to call an op of the database": """
        __abs__ __add__ __div__ __eq__ __floordiv__ __ge__ __gt__ __iadd__ __idiv__ __ifloordiv__ __imod__
        __imul__ __invert__ __ipow__ __isub__ __itruediv__ __le__ __lt__ __matmul__ __mod__ __mul__ __ne__
        __neg__ __pos__ __pow__ __rfloordiv__ __rlshift__ __rrshift__ __rtruediv__ __sub__ __truediv__ index
    """,
}
LEFT_OUT: Mapping[str, str] = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}


def public_functions() -> Iterator[str]:
    """Yield what a program may call by a public name that may give a tensor, in any namespace but ATen's."""
    for prefix, namespace in NAMESPACES.items():
        if prefix in ("torch.ops.aten", "torch.autograd"):
            continue
        for name in dir(namespace):
            private = name.startswith("_") and not name.startswith("__")
            if not private and name not in PROPERTIES and lookup(f"{prefix}.{name}") and _gives_tensors(name):
                yield f"{prefix}.{name}"


def _gives_tensors(name: str) -> bool:
    packet = lookup(f"torch.ops.aten.{name}")
    overloads = [getattr(packet, each) for each in packet.overloads()] if hasattr(packet, "overloads") else []
    returns = [str(result.type) for overload in overloads for result in schema_of(overload).returns]
    return not overloads or any("Tensor" in kind for kind in returns)


def not_asked() -> set[str]:
    """Names of functions that neither the op database nor ``functions`` has, by their last part.

    A name stands for its form in place, and for the function of another namespace that calls it or that it calls.
    """
    infos = [*opinfo.DATABASE.infos.values(), *functions.DATABASE.infos.values()]
    known = {info.name for info in infos} | {alias.name for info in infos for alias in info.aliases}
    known |= {info.aten_name for info in infos}
    asked = {_base(name) for name in known}
    return {last for name in public_functions() if _base(last := name.rpartition(".")[2]) not in asked}


def _base(name: str) -> str:
    last = name.rpartition(".")[2]
    return last if last.startswith("__") else last.rstrip("_")
