"""The targets by name: ours, those of plugins, and ``module:attribute`` of one that is being developed."""

from __future__ import annotations

from collections.abc import Iterable

from torchstone.compiler.diagnostics import TorchstoneError, did_you_mean
from torchstone.compiler.lowering.target import Target
from torchstone.compiler.registry import Registry


def _unknown(kind: str, name: str, names: Iterable[str]) -> TorchstoneError:
    known = list(names)
    return TorchstoneError(f'no {kind} "{name}"{did_you_mean(name, known)}; {kind}s: {", ".join(known)}')


TARGETS: Registry[Target] = Registry(
    "target",
    "torchstone.targets",
    Target,
    {
        "linalg": "torchstone.compiler.lowering.linalg:TARGET",
        "tosa": "torchstone.compiler.lowering.tosa:TARGET",
        "stablehlo": "torchstone.compiler.lowering.stablehlo:TARGET",
        "stablehlo-interpreter": "torchstone.compiler.lowering.stablehlo:INTERPRETER",
        "stablehlo-xla": "torchstone.compiler.lowering.stablehlo:XLA",
        "tensorrt": "torchstone.compiler.lowering.tensorrt:TARGET",
        "evaluator": "torchstone.compiler.lowering.evaluator:TARGET",
    },
    unknown=_unknown,
    broken=TorchstoneError,
)


def find_target(name: str) -> Target:
    """Return the target of this name, importing its lowering.

    Raises TorchstoneError for an unknown name, with a suggestion, and for a plugin that cannot be loaded.
    """
    return TARGETS.find(name)
