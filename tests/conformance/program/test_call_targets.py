"""Targets: a case reaches operators on tensors and numbers, nothing that takes an address, a file or a function."""

from __future__ import annotations

import ctypes
import inspect
import re
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from torchstone.conformance.program.call_targets import DENIED, NAMESPACES, PRIVATE_OPERATORS, lookup, resolve
from torchstone.conformance.program.case import Case, CaseError
from torchstone.conformance.program.program import Call, Program, ProgramError, Ref

ATEN = "torch.ops.aten"
WITHOUT_SCHEMA = {
    # of torch: they take numbers, lists of them and tensors, or shapes
    "as_tensor", "asarray", "tensor", "manual_seed", "dsmm", "hsmm", "saddmm", "spmm",
}  # fmt: skip
CALLABLE = {("triplet_margin_with_distance_loss", "distance_function")}
"""Parameters for functions. No literal is one, and none of what a case may call returns one."""
VALUES = re.compile(
    r"(Optional\[|List\[|Dict\[\w+, )*(Tensor|int|float|bool|number|complex|str|Device|Generator|QScheme|t)\]*"
)
OF_TORCHSCRIPT = {"aten.dequantize.any", "aten.eq.enum", "aten.ne.enum"}
"""Overloads of any type, which compute from values as the others of their name do."""
SUSPECT = re.compile(r"address|blob|callback|file|hook|path|pointer|ptr|storage(?!_offset)|stream|url|deleter|dlpack")


def operators() -> list[str]:
    return sorted({name.removeprefix("aten::").split(".")[0] for name in torch._C._dispatch_get_all_op_names()})


def overloads() -> Iterator[tuple[str, Any]]:
    """Every ATen operator that a case reaches, overload by overload."""
    for name in operators():
        packet: Any = lookup(f"{ATEN}.{name}")
        for overload in packet.overloads() if packet is not None else ():
            yield name, resolve(f"{ATEN}.{name}.{overload}")


def functions() -> Iterator[tuple[str, str, Any]]:
    """Everything else that a case reaches."""
    for prefix, namespace in NAMESPACES.items():
        for name in dir(namespace) if prefix != ATEN else ():
            function = lookup(f"{prefix}.{name}")
            if function is not None:
                yield prefix, name, function


def function_name(function: Any) -> str:
    return str(getattr(function, "__name__", ""))


def test_every_operator_takes_values_alone() -> None:
    seen = 0
    for name, overload in overloads():
        for argument in (*overload._schema.arguments, *overload._schema.returns):
            kind = str(argument.type)
            assert VALUES.fullmatch(kind) or str(overload) in OF_TORCHSCRIPT, f"{overload}: {argument.name} is a {kind}"
            scalar = kind.removeprefix("Optional[").startswith(("int", "str"))
            assert not (scalar and SUSPECT.search(argument.name or "")), f"{overload}: {argument.name}"
        assert not name.startswith("_") or name in PRIVATE_OPERATORS or name.startswith("__")
        seen += 1
    assert seen > 1500


def test_every_other_function_is_an_operator_by_another_name_or_takes_values_alone() -> None:
    known = set(operators())
    seen = 0
    for prefix, name, function in functions():
        seen += 1
        operator = {name, function_name(function), f"{prefix.rpartition('.')[2]}_{name}"} & known
        if isinstance(inspect.unwrap(function), types.FunctionType):
            for parameter in inspect.signature(function).parameters.values():
                taken = f"{parameter.name}: {parameter.annotation}"
                harmless = (name, parameter.name) in CALLABLE
                assert harmless or not re.search(f"Callable|Path|IO|{SUSPECT.pattern}", taken), f"{name}({taken})"
        elif prefix != "torch.Tensor":
            assert operator or name in WITHOUT_SCHEMA, f"{prefix}.{name} has no schema"
    assert seen > 1000


def test_private_functions_are_those_that_are_told() -> None:
    private = {name for _, name, _ in functions() if name.startswith("_") and not name.startswith("__")}
    assert private <= PRIVATE_OPERATORS
    assert set(operators()) >= PRIVATE_OPERATORS, "not of ATen"


def test_what_is_denied_is_denied_under_every_prefix() -> None:
    for prefix in NAMESPACES:
        for name in DENIED:
            assert lookup(f"{prefix}.{name}") is None
            assert lookup(f"{prefix}.{name}.default") is None


HOSTILE = {
    "torch._from_blob": "private",
    "torch.from_file": "memory at an address",
    "torch.ops.aten.from_file.default": "memory at an address",
    "torch.frombuffer": "memory at an address",
    "torch.from_numpy": "memory at an address",
    "torch.Tensor.set_": "other memory",
    "torch.ops.aten.set_.source_Storage_storage_offset": "other memory",
    "torch.ops.aten.fbgemm_linear_fp16_weight": "pointers",
    "torch.ops.aten.quantized_lstm_cell": "pointers",
    "torch._wrapped_quantized_linear_prepacked": "private",
    "torch.sparse_coo_tensor": "indices of a sparse tensor",
    "torch.ops.aten._sparse_coo_tensor_unsafe": "private",
    "torch.Tensor.crow_indices": "to be written to",
    "torch.Tensor._values": "private",
    "torch.ops.aten._nested_view_from_buffer.default": "private",
    "torch.ops.aten._reshape_alias": "private",
    "torch._cummax_helper": "private",
    "torch.nn.functional._add_docstr": "private",
    "torch.linalg._add_docstr": "private",
    "torch.masked._generate_docstring": "private",
    "torch.nn.functional._overload": "private",
    "torch.nn.functional.boolean_dispatch": "calls a function",
    "torch.sparse.as_sparse_gradcheck": "calls a function",
    "torch.Tensor.backward": "calls a function",
    "torch._cufft_set_plan_cache_max_size": "private",
    "torch.ops.aten.miopen_rnn": "one device's library",
}
OTHERS = """
    torch._C._from_dlpack torch.from_dlpack torch.save torch.load torch.compile torch.jit.load torch.set_default_dtype
    torch.set_default_device torch.classes.load_library torch.ops.load_library torch.set_num_threads torch.vmap
    torch.use_deterministic_algorithms torch.Tensor.apply_ torch.Tensor.map_ torch.Tensor.map2_ torch.Tensor.data_ptr
    torch.Tensor.register_hook torch.Tensor.share_memory_ torch.Tensor.untyped_storage torch.Tensor.__reduce__
    torch.Tensor.__array__ torch.Tensor.__dlpack__ torch.Tensor.__setstate__ torch.Tensor.numpy torch.ops.aten.__class__
    torch.autograd.Function torch.autograd.backward torch.nn.functional.handle_torch_function torch.Tensor.module_load
"""


@pytest.mark.few(30)
@pytest.mark.parametrize("target", [*HOSTILE, *OTHERS.split()])
def test_hostile_targets_are_refused_where_a_case_is_read(target: str) -> None:
    good = Case(
        Program(("x",), (Call("torch.neg", (Ref("x"),), {}, "y"),), Ref("y")), {"x": torch.ones(2)}, "s", "o", "float32"
    )
    assert len(target) < 500
    data = good.to_bytes()
    size = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + size].replace(b"torch.neg", target.encode())
    with pytest.raises(CaseError, match=f"forbidden target '{re.escape(target)}'.*{HOSTILE.get(target, '')}") as caught:
        Case.from_bytes(len(header).to_bytes(8, "little") + header + data[8 + size :])
    assert "\n" not in str(caught.value)


def test_memory_at_an_address_cannot_be_read_or_written() -> None:
    secret = ctypes.create_string_buffer(b"untouched", 16)
    blob = {"target": "torch._from_blob", "args": [ctypes.addressof(secret), [4]], "kwargs": {}, "result": "b"}
    wipe = {"target": "torch.Tensor.fill_", "args": [{"ref": ["b"]}, 80], "kwargs": {}, "result": "w"}
    with pytest.raises(ProgramError, match=r"forbidden target 'torch\._from_blob'"):
        Program.from_data({"inputs": [], "calls": [blob, wipe], "outputs": {"ref": ["w"]}})
    assert secret.value == b"untouched"
