"""The stages of Inductor: TorchDynamo, AOTAutograd, decompositions, Inductor itself.

Each is a backend of ``torch.compile`` that PyTorch has for this purpose. What it is in the last two is PyTorch's own
bisector's to say: which decomposition, pass or lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchstone.compiler._torch import dynamo
from torchstone.conformance.backends.adapters.dynamo_backend import DynamoBackend
from torchstone.conformance.backends.adapters.inductor import Inductor
from torchstone.conformance.bisection.rungs import Rung

_BEFORE = (
    ("capture", "TorchDynamo's graph, run by PyTorch", "eager"),
    ("AOTAutograd", "AOTAutograd's graph, run by PyTorch", "aot_eager"),
    ("decompositions", "the same with Inductor's decompositions", "aot_eager_decomp_partition"),
)


def rungs(backend: Any) -> Sequence[Rung]:
    """The rungs of Inductor on the CPU; none for any other backend."""
    if not isinstance(backend, Inductor):
        return ()
    before = [Rung(stage, what, lambda n=name: DynamoBackend("inductor", n)) for stage, what, name in _BEFORE]
    return (*before, Rung("inductor", "Inductor", lambda: backend, found=_named, made="output code"))


def _named(is_right: Callable[[], bool]) -> str:
    """What PyTorch's bisector finds: the part of Inductor, and which use of it."""
    found = dynamo.CompilerBisector.do_bisect(is_right)
    if found is None or found.subsystem is None:
        return ""
    at = f" {found.bisect_number}" if found.bisect_number else ""
    more = f": {found.debug_info}" if found.debug_info and found.debug_info != found.subsystem else ""
    return f"{found.subsystem}{at}{more}"
