"""Programs through each compiler's own path, as its users write it: what standalone scripts carry the source of.

``compiled_by_x(exported)`` compiles an ``ExportedProgram`` to a function from tensors to the list of its results, flat.
They use nothing of torchstone's and none of each other.
"""

# Compilers that are not installed, and values whose types their users do not spell out either.
# pyright: reportMissingImports=false, reportOptionalMemberAccess=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Callable

import torch


def compiled_by_tvm(exported: torch.export.ExportedProgram) -> Callable[..., list[torch.Tensor]]:
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    machine = relax.VirtualMachine(tvm.compile(from_exported_program(exported), target="llvm"), tvm.cpu())

    def call(*args):
        aligned = [arg.clone(memory_format=torch.contiguous_format) for arg in args]
        results = machine["main"](*map(tvm.runtime.from_dlpack, aligned))
        return [torch.from_dlpack(result) for result in results]

    return call


def compiled_by_xla(exported: torch.export.ExportedProgram) -> Callable[..., list[torch.Tensor]]:
    import jax
    from jax.dlpack import from_dlpack
    from jax.extend.backend import get_backend, get_compile_options
    from jaxlib import _jax
    from torch_mlir import fx, ir
    from torch_mlir.extras import fx_importer

    class InPlace:  # XLA takes no constants from MLIR's resources, where torch-mlir puts them
        @staticmethod
        def get_from_buffer(array, name, tensor):
            return ir.DenseElementsAttr.get(array, type=tensor.element_type, shape=tensor.shape)

    fx_importer.DenseResourceElementsAttr = InPlace
    module = fx.export_and_import(exported, output_type="stablehlo")
    jax.config.update("jax_enable_x64", True)
    client, options = get_backend("cpu"), get_compile_options(num_replicas=1, num_partitions=1)
    text = module.operation.get_asm(enable_debug_info=False)
    executable = client.compile_and_load(text.encode(), _jax.DeviceList(tuple(client.local_devices()[:1])), options)

    def call(*args):
        results = executable.execute([from_dlpack(arg.contiguous()) for arg in args])
        return [torch.from_dlpack(result) for result in results]

    return call


def compiled_by_torch_mlir(
    exported: torch.export.ExportedProgram, output_type: str
) -> Callable[..., list[torch.Tensor]]:
    import ctypes

    from torch_mlir import fx
    from torch_mlir._mlir_libs._stablehlo import register_stablehlo_passes
    from torch_mlir.execution_engine import ExecutionEngine
    from torch_mlir.passmanager import PassManager

    module = fx.export_and_import(exported, output_type=output_type)
    print(module)  # what torch-mlir lowers to; what follows are MLIR's own passes, and its execution engine
    to_linalg = {
        "linalg-on-tensors": "canonicalize",
        "tosa": "func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-tensor,"
        "tosa-to-arith{include-apply-rescale=true},tosa-to-scf),canonicalize",
        "stablehlo": "func.func(chlo-legalize-to-stablehlo),stablehlo-legalize-to-linalg,canonicalize",
    }
    to_llvm = (
        "one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map},"
        "buffer-results-to-out-params{modify-public-functions},"
        "func.func(llvm-request-c-wrappers,convert-linalg-to-loops,lower-affine,convert-scf-to-cf),"
        "expand-strided-metadata,lower-affine,convert-math-to-libm,convert-to-llvm,reconcile-unrealized-casts"
    )
    register_stablehlo_passes()
    with module.context:
        PassManager.parse(f"builtin.module({to_linalg[output_type]},{to_llvm})").run(module.operation)
        engine = ExecutionEngine(module)
    made = {node.name: node.meta["val"] for node in exported.graph.nodes if "val" in node.meta}
    kinds = [made[spec.arg.name] for spec in exported.graph_signature.output_specs]

    def memref(tensor):
        numbers = ctypes.c_int64 * (1 + 2 * tensor.dim())  # the offset, sizes, strides
        fields = [("allocated", ctypes.c_void_p), ("aligned", ctypes.c_void_p), ("numbers", numbers)]
        at, kind = tensor.data_ptr(), type("MemRef", (ctypes.Structure,), {"_fields_": fields})
        return ctypes.pointer(ctypes.pointer(kind(at, at, numbers(0, *tensor.shape, *tensor.stride()))))

    def call(*args):
        given = [arg.contiguous() for arg in args]
        results = [torch.empty(kind.shape, dtype=kind.dtype) for kind in kinds]
        engine.invoke("main", *map(memref, [*given, *results]))
        return results

    return call


def compiled_by_openvino(exported: torch.export.ExportedProgram) -> Callable[..., list[torch.Tensor]]:
    import openvino

    def copied(tensor, type):
        own = openvino.Tensor(type, openvino.Shape(list(tensor.shape)))
        own.data.reshape(-1).view("uint8")[...] = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        return own

    names = [spec.arg.name for spec in exported.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    shapes = [node.meta["val"].shape for node in exported.graph.nodes if node.name in names]
    model = openvino.convert_model(exported, input=[openvino.PartialShape(list(shape)) for shape in shapes])
    compiled = openvino.Core().compile_model(model, "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"})
    request = compiled.create_infer_request()
    kinds = {name: item.element_type for item in compiled.inputs for name in item.names}
    dtypes = {
        str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)
    }
    short = {"f": "float", "i": "int", "u": "uint", "bf": "bfloat", "boolean": "bool"}

    def call(*args):
        request.infer({name: copied(arg, kinds[name]) for name, arg in zip(names, args, strict=True) if name in kinds})
        results = []
        for value in request.output_tensors:
            kind = value.element_type.to_string()
            letters = kind.rstrip("0123456789")
            result = torch.empty(list(value.shape), dtype=dtypes[short[letters] + kind.removeprefix(letters)])
            result.reshape(-1).view(torch.uint8).numpy()[...] = value.data.reshape(-1).view("uint8")
            results.append(result)
        return results

    return call


def compiled_by_onnxruntime(exported: torch.export.ExportedProgram) -> Callable[..., list[torch.Tensor]]:
    import onnxruntime
    from onnxruntime import OrtValue
    from onnxruntime.capi import _pybind_state as native

    def given(tensor):
        tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        if tensor.dtype != torch.bool:
            return OrtValue.from_dlpack(tensor.contiguous())
        return OrtValue(native.OrtValue.from_dlpack(tensor.contiguous().view(torch.uint8).__dlpack__(), True))

    def shaped(value, node):
        tensor, dtype = torch.from_dlpack(value), node.meta["val"].dtype
        if dtype.is_complex and not tensor.is_complex():
            return torch.view_as_complex(tensor.contiguous())
        return tensor.bool() if dtype == torch.bool else tensor

    model = torch.onnx.export(exported, verbose=False).model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    outputs = [item.name for item in session.get_outputs()]
    nodes = exported.graph.output_node().args[0]

    def call(*args):
        feeds = {name: given(arg) for name, arg in zip(names, args, strict=True)}
        results = session.run_with_ort_values(outputs, feeds)
        return [shaped(value, node) for value, node in zip(results, nodes, strict=True)]

    return call


def compiled_by_executorch(exported: torch.export.ExportedProgram) -> Callable[..., list[torch.Tensor]]:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib

    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    program = edge.to_executorch().buffer
    module = portable_lib._load_for_executorch_from_buffer(program)

    def call(*args, kept=program):  # the runtime reads the program where it lies
        return [value.clone() for value in module.forward([arg.contiguous() for arg in args])]

    return call


def compiled_by_iree(exported: torch.export.ExportedProgram) -> Callable[..., list[torch.Tensor]]:
    import iree.runtime as rt
    import numpy
    from iree.compiler import compile_str
    from iree.turbine import aot
    from iree.turbine.aot.decompositions import current_aot_decompositions

    flags = [
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=host",
        "--iree-input-demote-f64-to-f32=false",
    ]
    module = aot.export(exported.run_decompositions(current_aot_decompositions())).mlir_module
    binary = compile_str(str(module), input_type="torch", extra_args=flags)
    instance, device = rt.VmInstance(), rt.get_device("local-sync")
    loaded = rt.VmModule.copy_buffer(instance, binary)
    context = rt.VmContext(instance, [rt.create_hal_module(instance, device), loaded])

    def element(dtype):
        kind = "COMPLEX" if dtype.is_complex else "FLOAT" if dtype.is_floating_point else "INT"
        kind = {torch.bool: "BOOL", torch.bfloat16: "BFLOAT"}.get(dtype, kind)
        return getattr(rt.HalElementType, f"{kind}_{dtype.itemsize * 8}")

    def call(*args):
        given, results = rt.VmVariantList(len(args)), rt.VmVariantList(1)
        for arg in args:
            buffer = device.allocator.allocate_buffer_copy(
                memory_type=rt.MemoryType.DEVICE_LOCAL,
                allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
                device=device,
                buffer=arg.contiguous().reshape(-1).view(torch.uint8).numpy(),
            )
            given.push_ref(rt.HalBufferView(buffer, list(arg.shape), element(arg.dtype)))
        context.invoke(loaded.lookup_function("main"), given, results)
        tensors = []
        for index, node in enumerate(exported.graph.output_node().args[0]):
            view = results.get_as_object(index, rt.HalBufferView)
            dtype = node.meta["val"].dtype
            if int(view.element_type) != int(element(dtype)):
                raise TypeError(f"result {index} has element type {view.element_type}, not {dtype}")
            out = torch.empty(list(view.shape), dtype=dtype)
            if out.numel():
                out.reshape(-1).view(torch.uint8).numpy()[...] = view.map().asarray(
                    [view.byte_length], numpy.dtype("uint8")
                )
            tensors.append(out)
        return tensors

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
