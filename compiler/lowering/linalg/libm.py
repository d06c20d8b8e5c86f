"""Calls into the C mathematical library, the most accurate implementation a CPU has.

Where glibc's float32 function is within one ULP it is called (through the ``math`` dialect); the others are computed in
float64 and rounded once. Complex functions are C99's, in float64: their C ABI is that of a function on two doubles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.lowering.linalg.basic import floating

Declare = Callable[[str, list[Any], list[Any]], None]


class Library:
    """Declares C functions in the module as they are first called."""

    def __init__(self, body: Any) -> None:
        self._body = body
        self._declared: set[str] = set()

    def call(self, name: str, *args: Any) -> Any:
        """Call ``double name(double, …)``; float32 arguments are extended and the result is rounded back."""
        bits = args[0].type.width
        wide = [mlir.arith.extf(floating(64), a) if bits == 32 else a for a in args]
        (result,) = self._call(name, wide, 1)
        return mlir.arith.truncf(floating(32), result) if bits == 32 else result

    def call_complex(self, name: str, *args: tuple[Any, Any]) -> tuple[Any, Any]:
        """Call ``double complex name(double complex, …)`` on pairs of float64."""
        real, imaginary = self._call(name, [part for pair in args for part in pair], 2)
        return real, imaginary

    def _call(self, name: str, args: list[Any], results: int) -> Any:
        ir, func = mlir.ir, mlir.func
        double = floating(64)
        if name not in self._declared:
            self._declared.add(name)
            with ir.InsertionPoint.at_block_begin(self._body), ir.Location.unknown():
                kind = ir.FunctionType.get([double] * len(args), [double] * results)
                func.FuncOp(name, kind, visibility="private")
        return func.CallOp([double] * results, name, args).results
