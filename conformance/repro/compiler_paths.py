"""Programs through each compiler's own path, as its users write it: what standalone scripts carry the source of.

``compiled_by_x(program, args, needs)`` compiles a module to a function from tensors to the list of its results, flat.
The tensors lie in row-major memory of their own. One that compiles for sizes that may vary takes ``dynamic_shapes``, as
torch.export does. The functions use nothing of torchstone's and none of each other.

What not every case needs stands in an ``if`` of ``needs``, which a script does not have: it has the branch that its
case takes (``path_text``). A script of one call has the statements alone, beside its own.
"""

# Compilers that are not installed, and values whose types their users do not spell out either.
# pyright: reportMissingImports=false, reportOptionalMemberAccess=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torchstone.conformance.repro.path_text import Needs


def compiled_by_tvm(program: torch.nn.Module, args: tuple[torch.Tensor, ...], needs: Needs) -> Callable[..., Any]:
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    module = from_exported_program(torch.export.export(program, args, strict=False))
    if needs.lowering_alone:
        return module
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())

    def call(*args):
        return [torch.from_dlpack(result) for result in machine["main"](*map(tvm.runtime.from_dlpack, args))]

    return call


def compiled_by_xla(program: torch.nn.Module, args: tuple[torch.Tensor, ...], needs: Needs) -> Callable[..., Any]:
    import jax
    from jax.dlpack import from_dlpack
    from jax.extend.backend import get_backend, get_compile_options
    from torch_mlir import fx, ir

    ir.DenseResourceElementsAttr.get_from_buffer = lambda array, _, kind: ir.DenseElementsAttr.get(
        array, type=kind.element_type, shape=kind.shape
    )  # XLA takes no constants from MLIR's resources, where torch-mlir puts them
    module = fx.export_and_import(torch.export.export(program, args, strict=False), output_type="stablehlo")
    if needs.lowering_alone:
        return module
    jax.config.update("jax_enable_x64", True)
    client, options = get_backend("cpu"), get_compile_options(num_replicas=1, num_partitions=1)
    executable = client.compile_and_load(str(module).encode(), client.local_devices()[:1], options)

    def call(*args):
        return [torch.from_dlpack(result) for result in executable.execute([from_dlpack(arg) for arg in args])]

    return call


def compiled_by_torch_mlir(
    program: torch.nn.Module, args: tuple[torch.Tensor, ...], needs: Needs
) -> Callable[..., Any]:
    import re
    import subprocess
    from ctypes import pointer

    from torch_mlir import _mlir_libs, fx, ir
    from torch_mlir._mlir_libs._stablehlo import register_stablehlo_passes
    from torch_mlir.execution_engine import ExecutionEngine
    from torch_mlir.passmanager import PassManager
    from torch_mlir.runtime import get_ranked_memref_descriptor

    exported = torch.export.export(program, args, strict=False)
    module = fx.export_and_import(exported, output_type=needs.output_type)
    if needs.lowering_alone:
        return module
    print(module)  # what torch-mlir lowers to; what follows are MLIR's own passes, and its execution engine
    passes = (
        "canonicalize,one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion="
        "identity-layout-map},buffer-results-to-out-params{modify-public-functions}"
    )
    if needs.output_type == "tosa":
        to_scf = "tosa-to-arith{include-apply-rescale=true},tosa-to-scf"
        passes = f"func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-tensor,{to_scf}),{passes}"
    elif needs.output_type == "stablehlo":
        register_stablehlo_passes()
        passes = f"func.func(chlo-legalize-to-stablehlo),stablehlo-legalize-to-linalg,{passes}"
    if needs.tool:  # noqa: SIM102, a script has the inner one alone
        if "tm_tensor." in str(module):  # the passes for these are in torch-mlir's command-line tool alone
            opt = [f"{_mlir_libs.__path__[0]}/torch-mlir-opt"]
            opt += ["--pass-pipeline=builtin.module(func.func(tm-tensor-bufferize,tm-tensor-to-loops))"]
            text = subprocess.run(opt, input=str(module), stdout=subprocess.PIPE, text=True, check=True).stdout
            text = re.sub(r"(bufferization.to_tensor \S+)", r"\1 restrict", text)  # it has just allocated them all
            module = ir.Module.parse(text, module.context)
    PassManager.parse(f"builtin.module({passes})", module.context).run(module.operation)
    # Loops for what would be a call of a library.
    text = re.sub(r"memref.copy (\S+), (\S+) : (.+) to (.+)", r"linalg.copy ins(\1 : \3) outs(\2 : \4)", str(module))
    module = ir.Module.parse(text, module.context)
    passes = (
        "func.func(llvm-request-c-wrappers,convert-linalg-to-loops,lower-affine,convert-scf-to-cf),"
        "expand-strided-metadata,lower-affine,func.func(arith-emulate-unsupported-floats{source-types=bf16 "
        "target-type=f32},arith-expand{include-bf16=true}),convert-math-to-libm,convert-to-llvm,"
        "reconcile-unrealized-casts"
    )
    PassManager.parse(f"builtin.module({passes})", module.context).run(module.operation)
    engine = ExecutionEngine(module, opt_level=0)  # as it was run; above it, bfloat16 may need a library
    kinds = [node.meta["val"] for node in exported.graph.output_node().args[0]]

    def call(*args):
        results = [torch.empty(kind.shape, dtype=kind.dtype) for kind in kinds]
        tensors = [*args, *results]
        if needs.foreign:  # the same bytes: NumPy has no such dtypes
            tensors = [
                x.view(getattr(torch, f"int{8 * x.itemsize}")) if x.dtype in needs.foreign else x for x in tensors
            ]
        engine.invoke("main", *[pointer(pointer(get_ranked_memref_descriptor(x.numpy()))) for x in tensors])
        return results

    return call


def compiled_by_openvino(program: torch.nn.Module, args: tuple[torch.Tensor, ...], needs: Needs) -> Callable[..., Any]:
    import openvino

    exported = torch.export.export(program, args, strict=False)
    model = openvino.convert_model(exported, input=[arg.shape for arg in args])
    if needs.lowering_alone:
        return model
    network = openvino.Core().compile_model(model, "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"})

    def call(*args):
        if needs.foreign:  # bfloat16, which NumPy lacks
            bf16, bits = openvino.Type.bf16, [x.view(torch.int16) if x.dtype == torch.bfloat16 else x for x in args]
            pairs = zip(args, bits, strict=True)
            arrays = [x.numpy() if x is y else openvino.Tensor(y.numpy(), y.shape, bf16) for x, y in pairs]
        else:
            arrays = [arg.numpy() for arg in args]
        results = network(arrays).to_tuple()
        if needs.foreign:
            is_bf16 = [item.element_type == bf16 for item in network.outputs]
            same = [torch.from_numpy(x.view("int16") if b else x) for x, b in zip(results, is_bf16, strict=True)]
            return [x.view(torch.bfloat16) if b else x for x, b in zip(same, is_bf16, strict=True)]
        return [torch.from_numpy(result) for result in results]

    return call


def compiled_by_onnxruntime(
    program: torch.nn.Module, args: tuple[torch.Tensor, ...], needs: Needs
) -> Callable[..., Any]:
    import onnxruntime
    from onnxruntime import OrtValue

    exported = torch.export.export(program, args, strict=False)
    model = torch.onnx.export(exported, verbose=False).model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    def call(*args):
        if needs.complex:  # in ONNX, pairs of real numbers
            tensors = [torch.view_as_real(arg) if arg.is_complex() else arg for arg in args]
        else:
            tensors = args
        if needs.foreign:  # dtypes that NumPy lacks
            if needs.booleans:  # which DLPack does not always have
                made = {torch.bool: lambda x: OrtValue.ortvalue_from_numpy(x.numpy())}
                values = [made.get(x.dtype, OrtValue.from_dlpack)(x) for x in tensors]
            else:
                values = [OrtValue.from_dlpack(x) for x in tensors]
            feeds = {item.name: value for item, value in zip(session.get_inputs(), values, strict=True)}
            found = session.run_with_ort_values([item.name for item in session.get_outputs()], feeds)
            if needs.booleans:
                made = {"tensor(bool)": lambda x: torch.from_numpy(x.numpy())}
                results = [made.get(x.data_type(), torch.from_dlpack)(x) for x in found]
            else:
                results = [torch.from_dlpack(x) for x in found]
        else:
            feeds = {item.name: x.numpy() for item, x in zip(session.get_inputs(), tensors, strict=True)}
            results = [torch.from_numpy(result) for result in session.run(None, feeds)]
        if needs.complex:
            nodes = exported.graph.output_node().args[0]
            pairs = [y.meta["val"].is_complex() and not x.is_complex() for x, y in zip(results, nodes, strict=True)]
            results = [torch.view_as_complex(x) if pair else x for x, pair in zip(results, pairs, strict=True)]
        return results

    return call


def compiled_by_executorch(
    program: torch.nn.Module, args: tuple[torch.Tensor, ...], needs: Needs
) -> Callable[..., Any]:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib

    exported = torch.export.export(program, args, strict=False)
    binary = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch().buffer
    if needs.lowering_alone:
        return binary
    module = portable_lib._load_for_executorch_from_buffer(binary)

    def call(*args, kept=binary):  # which the runtime reads where it lies
        return [value.clone() for value in module.forward([*args])]

    return call


def compiled_by_iree(
    program: torch.nn.Module, args: tuple[torch.Tensor, ...], needs: Needs, dynamic_shapes: Any = None
) -> Callable[..., Any]:
    from iree.compiler import compile_str
    from iree.runtime import load_vm_flatbuffer
    from iree.turbine import aot

    if needs.any_size:
        module = aot.export(program, args=args, dynamic_shapes=dynamic_shapes, strict_export=False).mlir_module
    else:
        module = aot.export(program, args=args, strict_export=False).mlir_module
    if needs.lowering_alone:
        return module
    flags = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
    flags += ["--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"]
    main = load_vm_flatbuffer(compile_str(str(module), input_type="torch", extra_args=flags), driver="local-sync").main

    def call(*args):
        if needs.one_plain_result:
            return [torch.from_numpy(main(*[arg.numpy() for arg in args]).to_host())]
        if needs.plain_results:
            return [torch.from_numpy(result.to_host()) for result in main(*[arg.numpy() for arg in args])]
        if needs.foreign:  # NumPy has these dtypes from ml_dtypes, which come with IREE
            bits = [x.view(getattr(torch, f"int{8 * x.itemsize}")) if x.dtype in needs.foreign else x for x in args]
            names = [str(arg.dtype).removeprefix("torch.") for arg in args]
            arrays = [x.numpy().view(name) for x, name in zip(bits, names, strict=True)]
        else:
            arrays = [arg.numpy() for arg in args]
        if needs.one_result:
            results = [main(*arrays).to_host()]
        else:
            results = main(*arrays)
            results = [x.to_host() for x in (results if isinstance(results, tuple) else [results])]
        if needs.foreign:
            dtypes = [getattr(torch, x.dtype.name) for x in results]
            pairs = zip(results, dtypes, strict=True)
            same = [x.view(f"int{8 * x.itemsize}") if dtype in needs.foreign else x for x, dtype in pairs]
            return [torch.from_numpy(x).view(dtype) for x, dtype in zip(same, dtypes, strict=True)]
        if needs.unsigned:  # IREE's integers have no sign
            names = [str(dtype).removeprefix("torch.") for dtype in needs.results]
            results = [x.view(name) if f"u{x.dtype}" == name else x for x, name in zip(results, names, strict=True)]
        return [torch.from_numpy(x) for x in results]

    return call


PATHS = {
    "tvm": compiled_by_tvm,
    "xla": compiled_by_xla,
    "openvino": compiled_by_openvino,
    "onnxruntime": compiled_by_onnxruntime,
    "executorch": compiled_by_executorch,
    "iree": compiled_by_iree,
}
# torch-mlir's output types, by the names of the backends
OUTPUT_TYPES = {
    "torch-mlir-linalg": "linalg-on-tensors",
    "torch-mlir-tosa": "tosa",
    "torch-mlir-stablehlo": "stablehlo",
}
