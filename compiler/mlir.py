"""The one module that decides which MLIR bindings are used, and the only one that imports them.

A complete upstream build (``import mlir``) wins; else the copy inside the ``torch-mlir`` wheel (``torch_mlir.ir``).
Nothing is imported before the first attribute is read::

    from torchstone.compiler import mlir

    mlir.ir.F32Type            # bindings
    mlir.linalg.GenericOp      # dialect ``linalg``: any name of a dialect module works
    with mlir.context():       # the context that this process shares: making one costs 3.5 ms
        ...

A module that only one provider can read (torch-mlir's own dialects) takes ``mlir.bindings("torch_mlir")``.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, cached_property
from glob import glob
from pathlib import Path
from types import ModuleType
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError

PROVIDERS = ("mlir", "torch_mlir")
_NEEDED = ("ir", "passmanager", "execution_engine", "rewrite", "dialects.linalg", "dialects.bufferization")
_LIBRARIES = ("libMLIRPythonCAPI.so*", "libTorchMLIRAggregateCAPI.so*", "lib*CAPI*.so*", "lib*CAPI*.dylib")
_MODULES = ("ir", "passmanager", "execution_engine", "rewrite")


class StringRef(ctypes.Structure):
    """``MlirStringRef`` of the C API."""

    _fields_ = (("data", ctypes.c_char_p), ("length", ctypes.c_size_t))

    @classmethod
    def of(cls, text: str) -> StringRef:
        data = text.encode()
        return cls(data, len(data))


class Bindings:
    """One provider's MLIR: its Python modules, its C API library and the context that this process shares."""

    def __init__(self, provider: str) -> None:
        self.provider = provider

    def __getattr__(self, name: str) -> Any:
        """Import module ``name``: ``ir``, ``passmanager``, ``execution_engine``, ``rewrite`` or a dialect."""
        if name.startswith("_"):
            raise AttributeError(name)
        path = name if name in _MODULES else f"dialects.{name}"
        module: ModuleType = importlib.import_module(f"{self.provider}.{path}")
        setattr(self, name, module)
        return module

    @cached_property
    def shared_context(self) -> Any:
        """The context every module of this process lives in; threads cost its small modules more than they give."""
        context = self.ir.Context()
        context.enable_multithreading(False)
        return context

    @cached_property
    def capi(self) -> ctypes.CDLL:
        """The aggregate C API library, already loaded by the Python modules."""
        _ = self.ir
        return ctypes.CDLL(self.library_path)

    @cached_property
    def library_path(self) -> str:
        """Path of the shared library that holds MLIR, LLVM and the C API."""
        libs = importlib.import_module(f"{self.provider}._mlir_libs")
        folder = Path(str(libs.__file__)).parent
        for pattern in _LIBRARIES:
            found = sorted(glob(str(folder / pattern)))
            if found:
                return found[0]
        raise TorchstoneError(f"{self.provider}: no C API library in {folder}; reinstall it", stage="compile")


def _missing(provider: str) -> str:
    """Return what ``provider`` lacks, or an empty string. Importing upstream's ``ir`` is the only proof it is whole."""
    for name in _NEEDED:
        try:
            importlib.import_module(f"{provider}.{name}")
        except ImportError as error:
            return str(error)
    return ""


@cache
def bindings(provider: str | None = None) -> Bindings:
    """Return the bindings to use, or those of ``provider`` (``mlir`` or ``torch_mlir``).

    Raises TorchstoneError (stage ``compile``) with the line that installs them when there are none.
    """
    reasons = []
    for name in (provider,) if provider else PROVIDERS:
        # The name `mlir` may be an empty placeholder package: only a build that has every module counts.
        reason = _missing(name)
        if not reason:
            return Bindings(name)
        reasons.append(reason)
    raise TorchstoneError(
        f"no MLIR Python bindings ({'; '.join(reasons)}); install them with: pip install torch-mlir", stage="compile"
    )


def available() -> str:
    """Return the provider that is used, or an empty string when there are no bindings."""
    try:
        return bindings().provider
    except TorchstoneError:
        return ""


def context() -> AbstractContextManager[Any]:
    """Return the context this process shares, to be entered with ``with``."""
    return bindings().shared_context


def create(name: str, result: Any, operands: Sequence[Any], **attributes: Any) -> Any:
    """Make an op of one result, of that type, by name, in a third of the time that its class takes; return the result.

    Nothing is inferred or converted: operands are values, attributes are attributes.
    """
    return bindings().ir.Operation.create(name, [result], operands, attributes).result


# What a dialect of scalar code has functions for: ops of the type of their first operand, ...
_UNIFORM = {
    "arith": (
        "addf", "addi", "andi", "divf", "divsi", "divui", "maximumf", "maxsi", "maxui", "minimumf", "minsi", "minui",
        "mulf", "muli", "negf", "ori", "remf", "remsi", "remui", "shli", "shrsi", "shrui", "subf", "subi", "xori",
    ),
    "math": ("absf", "ceil", "copysign", "cos", "exp", "floor", "fma", "log", "roundeven", "sin", "sqrt", "trunc"),
}  # fmt: skip
# ... and of a type given ahead of the operand.
_CONVERSIONS = ("bitcast", "extf", "extsi", "extui", "fptosi", "index_cast", "sitofp", "truncf", "trunci", "uitofp")


class _Scalars:
    """The dialect ``arith`` or ``math``, but the functions of most ops go through ``create``."""

    def __init__(self, name: str, module: ModuleType) -> None:
        self._module = module
        for op in _UNIFORM[name]:
            setattr(self, op, self._uniform(f"{name}.{op}"))
        if name == "arith":
            self.select = lambda condition, a, b: create("arith.select", a.type, (condition, a, b))
            for op in _CONVERSIONS:
                setattr(self, op, self._conversion(f"{name}.{op}"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    @staticmethod
    def _uniform(name: str) -> Callable[..., Any]:
        return lambda *operands: create(name, operands[0].type, operands)

    @staticmethod
    def _conversion(name: str) -> Callable[..., Any]:
        return lambda result, operand: create(name, result, (operand,))


def __getattr__(name: str) -> Any:
    """Give the default provider's modules and dialects as attributes of this module."""
    if name.startswith("__"):
        raise AttributeError(name)
    value = getattr(bindings(), name)
    if name in _UNIFORM:
        globals()[name] = value = _Scalars(name, value)
        return value
    if name in _MODULES or isinstance(value, ModuleType):
        globals()[name] = value
    return value
