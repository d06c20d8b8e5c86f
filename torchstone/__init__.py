"""torchstone: run PyTorch programs through a compiler and through eager, and say whether the compiler is right.

    exe = torchstone.compile(fn, args, target="linalg", dynamic_shapes=None)

    @torchstone.case(inputs=lambda dtype: torch.randn(4, dtype=dtype))   # in a test module: a case for pytest
    def scaled(x): ...

Importing this package imports neither torch nor MLIR; what is in it does when it is first asked for.

PYTEST_DONT_REWRITE: pytest would warn where this is imported before its plugin is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchstone.compiler.capture.export.named_sizes import Dim
    from torchstone.compiler.driver import compile
    from torchstone.conformance.pytest_plugin.user_cases import case

    __version__: str

__all__ = ["Dim", "__version__", "case", "compile"]


def __getattr__(name: str) -> Any:
    if name == "compile":
        from torchstone.compiler.driver import compile

        globals()["compile"] = compile
        return compile
    if name == "Dim":
        from torchstone.compiler.capture.export.named_sizes import Dim

        globals()["Dim"] = Dim
        return Dim
    if name == "case":
        from torchstone.conformance.pytest_plugin.user_cases import case

        globals()["case"] = case
        return case
    if name == "__version__":
        from importlib.metadata import version

        return version("torchstone")
    raise AttributeError(f"module 'torchstone' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
