"""Print the API surface of the real TensorRT bindings as JSON: methods with argument names, properties, enum values.

The engine library is not needed. ``stub.c`` is compiled into the three shared libraries that the bindings are linked
with, which are loaded first. To regenerate the committed file for a version of the bindings, in a scratch environment::

    pip install tensorrt-cu13-bindings==11.4.0.106
    python dump_api.py > api_11.4.0.json

This is a script, run in a process of its own: bindings imported over the stubs can build nothing.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser")
# What the lowering, the runtime and the simulator use or could use; the rest (plugins, parsers, refitting) stays out.
CLASSES = (
    "Builder", "IBuilderConfig", "ICudaEngine", "IExecutionContext", "IHostMemory", "ILogger", "INetworkDefinition",
    "IOptimizationProfile", "ITensor", "ITimingCache", "Logger", "Runtime", "Dims", "Permutation", "Weights", "ILayer",
    "IActivationLayer", "ICastLayer", "IConcatenationLayer", "IConstantLayer", "IConvolutionLayer", "ICumulativeLayer",
    "IDeconvolutionLayer", "IEinsumLayer", "IElementWiseLayer", "IFillLayer", "IGatherLayer", "IIdentityLayer",
    "IMatrixMultiplyLayer", "INormalizationLayer", "IPoolingLayer", "IReduceLayer", "IResizeLayer", "IScaleLayer",
    "IScatterLayer", "ISelectLayer", "IShapeLayer", "IShuffleLayer", "ISliceLayer", "ISoftMaxLayer", "ITopKLayer",
    "IUnaryLayer",
)  # fmt: skip
ENUMS = (
    "ActivationType", "BuilderFlag", "CumulativeOperation", "DataType", "ElementWiseOperation", "FillOperation",
    "GatherMode", "LayerType", "MatrixOperation", "MemoryPoolType", "NetworkDefinitionCreationFlag", "PoolingType",
    "ReduceOperation", "SampleMode", "ScaleMode", "ScatterMode", "TensorIOMode", "TensorLocation",
    "TopKOperation", "UnaryOperation",
)  # fmt: skip


def import_over_stubs() -> Any:
    """Import ``tensorrt_bindings``; ImportError when it is not installed."""
    import importlib.util

    spec = importlib.util.find_spec("tensorrt_bindings")
    if spec is None or spec.origin is None:
        raise ImportError("tensorrt_bindings is not installed: pip install tensorrt-cu13-bindings")
    needed = (Path(spec.origin).parent / "tensorrt.so").read_bytes()
    major = re.search(rb"libnvinfer\.so\.(\d+)", needed)
    if major is None:
        raise ImportError("tensorrt_bindings is not linked with libnvinfer")
    with tempfile.TemporaryDirectory() as folder:
        for name in LIBRARIES:
            library = f"{folder}/lib{name}.so.{major[1].decode()}"
            command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{Path(library).name}", "-o", library]
            subprocess.run([*command, str(Path(__file__).with_name("stub.c"))], check=True)
            # A library that is already loaded under the wanted soname is not looked for again.
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
        import tensorrt_bindings

    return tensorrt_bindings


def arguments(signature: str) -> list[str]:
    """Return the argument names in ``(self: T, a: U, b: V = d) -> W``, with ``=`` appended to those with a default."""
    depth, names, start = 0, [], 1
    for at, char in enumerate(signature):
        if char in "([<{":
            depth += 1
        elif char in ")]}" or (char == ">" and signature[at - 1] != "-"):
            depth -= 1
        if (char == "," and depth == 1) or depth == 0:
            item = signature[start:at].strip()
            start = at + 1
            if item and not item.startswith("*"):
                names.append(item.split(":")[0].split("=")[0].strip() + ("=" if "=" in item else ""))
        if depth == 0:
            break
    return [name for name in names if name != "self"]


def overloads(name: str, doc: str) -> list[list[str]]:
    """Return the argument lists of every overload that a pybind11 docstring shows."""
    found = re.findall(rf"^(?:\d+\. )?{re.escape(name)}(\(.*)$", doc, re.MULTILINE)
    return [arguments(signature) for signature in found if not signature.startswith("(*")]


def surface(trt: Any) -> dict[str, Any]:
    """Return the JSON value."""
    methods: dict[str, dict[str, list[list[str]]]] = {}
    properties: dict[str, list[str]] = {}
    for name in (n for n in CLASSES if hasattr(trt, n)):  # an older version lacks some
        cls = getattr(trt, name)
        methods[name], properties[name] = {}, []
        for member in dir(cls):
            inherited = any(member in base.__dict__ for base in cls.__mro__[1:])
            if (member.startswith("_") and member != "__init__") or (inherited and member != "__init__"):
                continue
            value = getattr(cls, member)
            if callable(value):
                shown = overloads(member, value.__doc__ or "")
                if shown:
                    methods[name][member] = shown
            elif isinstance(value, property):
                properties[name].append(member)
    enums = {n: {k: int(v) for k, v in getattr(trt, n).__members__.items()} for n in ENUMS if hasattr(trt, n)}
    return {"version": trt.__version__, "methods": methods, "properties": properties, "enums": enums}


def main() -> None:
    print("{")
    parts = []
    for key, value in surface(import_over_stubs()).items():
        if isinstance(value, str):
            parts.append(f'"{key}": {json.dumps(value)}')
            continue
        rows = []
        for name, body in value.items():
            if key == "methods":
                lines = ",\n".join(f"      {json.dumps(k)}: {json.dumps(v)}" for k, v in body.items())
                rows.append(f'    "{name}": {{\n{lines}\n    }}' if lines else f'    "{name}": {{}}')
            else:
                rows.append(f'    "{name}": {json.dumps(body)}')
        parts.append(f'"{key}": {{\n' + ",\n".join(rows) + "\n  }")
    print(",\n".join("  " + part for part in parts))
    print("}")


if __name__ == "__main__":
    try:
        main()
    except ImportError as error:
        sys.exit(f"dump_api: {error}")
