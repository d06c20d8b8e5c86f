"""torchstone's own compiler as backends: one contract, several targets."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torchstone.conformance.backends.protocol import (
    Availability,
    BackendError,
    BackendGuardError,
    BackendUnsupported,
    counted,
)

if TYPE_CHECKING:
    from torch import Tensor

STAGES = {"capture": "capture", "contract": "lower", "lower": "lower", "compile": "compile", "run": "run"}


class Builtin:
    """A target of ``torchstone.compile``."""

    name = ""
    packages: tuple[str, ...] = ("torch", "torchstone")
    options: tuple[str, ...] = ()
    # Measured on linalg, beside programs of which many are compiled together.
    costs: ClassVar = {"backward": 2, "batch": 6, "dynamic": 16, "draws": 2, "control flow": 2}
    preload: tuple[str, ...] = ("torchstone.compiler.driver",)
    library_calls = True
    frozen = False
    """Whether inputs after the first are taken for constants."""
    row: Any = None
    """The target, where it is not the one of the name: one up to a stage, after which an interpreter goes on."""

    @property
    def sources(self) -> Path:
        """The folder of the compiler's own sources."""
        spec = importlib.util.find_spec("torchstone.compiler")
        assert spec is not None and spec.submodule_search_locations
        return Path(spec.submodule_search_locations[0])

    @property
    def target(self) -> str:
        return self.name.partition("+")[0]

    @property
    def executors(self) -> tuple[str, ...]:
        """Who runs the target's compiled code; a library call is PyTorch's."""
        return (self.target,)

    def configured(self, options: Sequence[str]) -> Builtin:
        """Return this backend with options on."""
        out = copy.copy(self)
        out.name = "+".join([self.name, *options])
        out.library_calls = "no-library-calls" not in options
        out.frozen = "frozen" in options
        return out

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return _versions(self.packages)

    def settings(self) -> dict[str, Any]:
        """Return the options of ``compile``. Every result is on trial, those too that eager would not compute."""
        return {"target": self.row or self.target, "library_calls": self.library_calls, "alias_results": False}

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return self._compiled(fn, args)

    def compile_dynamic(
        self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Any]:
        return self._compiled(fn, args, dims, refused="PyTorch's export took a size for fixed")

    def _compiled(
        self,
        fn: Callable[..., Any],
        args: tuple[Tensor, ...],
        dims: tuple[tuple[int, ...], ...] | None = None,
        refused: str = "",
        **more: Any,
    ) -> Callable[..., Any]:
        from torchstone.compiler.diagnostics import TorchstoneError
        from torchstone.conformance.backends.adapters.frozen import compile_program

        try:
            executable, called_by = compile_program(fn, args, dims, frozen=self.frozen, **self.settings(), **more)
        except TorchstoneError as error:
            raise _translate(error) from error
        return called_by(self._runner(executable, refused))

    def _runner(self, executable: Any, refused: str = "") -> Callable[..., Any]:
        """The executable as a backend's; with ``refused``, a guard that does not hold is a refusal for that reason."""
        from torchstone.compiler.diagnostics import GuardError, TorchstoneError

        def run(*tensors: Tensor) -> Any:
            try:
                return executable(*tensors)
            except GuardError as error:
                if refused:
                    raise BackendUnsupported(f"{refused}: {error}", "capture") from error
                raise BackendGuardError(str(error)) from error
            except TorchstoneError as error:
                raise _translate(error) from error

        ran = {self.executors[0]: counted(executable.compiled_ops), "eager": counted(executable.library_calls)}
        run.__dict__["stages"] = executable.ir
        run.__dict__["evidence"] = {"ran": {executor: ops for executor, ops in ran.items() if ops}}
        return run


class _Mlir(Builtin):
    packages = ("torch", "torchstone", "torch-mlir")
    preload = (*Builtin.preload, "torchstone.compiler.lowering.linalg.build", "torchstone.compiler.runtime.cpu.kernel")
    batch = 32

    def compile_optimized(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return self._compiled(fn, args, optimize=True)

    def compile_many(
        self, programs: Iterable[tuple[Callable[..., Any], tuple[Tensor, ...]]]
    ) -> list[Callable[..., Any] | Exception]:
        from torchstone.compiler.diagnostics import TorchstoneError
        from torchstone.compiler.driver import compile_many

        if self.frozen:  # each holds tensors of its own
            return [self._or_error(fn, args) for fn, args in programs]
        return [
            _translate(one)
            if isinstance(one, TorchstoneError)
            else one
            if isinstance(one, Exception)
            else self._runner(one)
            for one in compile_many(programs, **self.settings())
        ]

    def _or_error(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any] | Exception:
        try:
            return self.compile(fn, args)
        except Exception as error:
            return error

    def available(self) -> Availability:
        from torchstone.compiler.runtime.cpu.level import refusal

        if reason := refusal():
            return Availability(False, reason)
        # Looking for the package is enough: which bindings serve, and whether they are whole, is the runtime's say.
        if any(importlib.util.find_spec(name) is not None for name in ("mlir", "torch_mlir")):
            return Availability(True)
        return Availability(False, "no MLIR Python bindings", "pip install torch-mlir")


class Linalg(_Mlir):
    """ATen -> FlatIR -> linalg -> LLVM, in process."""

    name = "linalg"
    random_numbers = "eager"
    options = ("no-library-calls", "frozen")


class Tosa(_Mlir):
    """ATen -> FlatIR -> TOSA, then upstream's tosa-to-linalg and the same runtime."""

    name = "tosa"
    random_numbers = "eager"
    options = ("no-library-calls", "frozen")


class Stablehlo(_Mlir):
    """ATen -> FlatIR -> StableHLO, then upstream's stablehlo-legalize-to-linalg and the same runtime."""

    name = "stablehlo"
    random_numbers = "eager"
    options = ("no-library-calls", "frozen")

    def available(self) -> Availability:
        return super().available() if _has_stablehlo() else _NO_STABLEHLO


class StablehloInterpreter(Builtin):
    """ATen -> FlatIR -> StableHLO, run by StableHLO's reference interpreter."""

    name = "stablehlo-interpreter"
    packages = ("torch", "torchstone", "torch-mlir")
    random_numbers = "eager"

    def available(self) -> Availability:
        return Availability(True) if _has_stablehlo() else _NO_STABLEHLO


class StablehloXla(Builtin):
    """ATen -> FlatIR -> StableHLO, run by OpenXLA's CPU compiler."""

    name = "stablehlo-xla"
    packages = ("torch", "torchstone", "torch-mlir", "jax", "jaxlib")
    random_numbers = "eager"

    def available(self) -> Availability:
        if not _has_stablehlo():
            return _NO_STABLEHLO
        missing = [name for name in ("jax", "jaxlib") if importlib.util.find_spec(name) is None]
        return Availability(False, f"no {' and no '.join(missing)}", _INSTALL_XLA) if missing else Availability(True)


_INSTALL_XLA = "pip install 'torchstone[xla]'"


def _has_stablehlo() -> bool:
    """Say whether MLIR bindings with StableHLO are there; looking for the package is enough."""
    return importlib.util.find_spec("torch_mlir") is not None


_NO_STABLEHLO = Availability(False, "no MLIR Python bindings with StableHLO", "pip install torch-mlir")


class TensorRT(Builtin):
    """ATen -> FlatIR -> TensorRT's network API; a simulator of it stands in where the library is absent."""

    name = "tensorrt"
    packages = ("torch", "torchstone", "tensorrt")
    random_numbers = "eager"
    options = ("no-library-calls", "frozen")

    def versions(self) -> dict[str, str]:
        found = _versions(self.packages)
        return found if "tensorrt" in found else found | {"tensorrt": "simulator"}

    @property
    def executors(self) -> tuple[str, ...]:
        return ("tensorrt simulator",) if self.uses_eager_kernels else ("tensorrt",)

    @property
    def uses_eager_kernels(self) -> bool:
        """Whether engines are simulated: the simulator computes each layer by PyTorch."""
        return self.versions()["tensorrt"] == "simulator"


def _translate(error: Any) -> BackendError | BackendUnsupported:
    from torchstone.compiler.diagnostics import Unsupported

    stage = STAGES.get(error.stage, "compile")
    if isinstance(error, Unsupported):
        return BackendUnsupported(str(error), stage, op=error.op)
    return BackendError(str(error), stage)


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
