"""What a compiler is handed over: what its users give it, or what an option asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from torchstone.conformance.backends import load
from torchstone.conformance.backends.exporting import DECOMPOSED, UNDECOMPOSED, Exporting
from torchstone.conformance.backends.protocol import BackendUnsupported
from torchstone.conformance.errors import InputError


class Handed(Exporting):
    """A compiler that runs what it is handed over, and keeps it."""

    name = "handed"
    options = (DECOMPOSED, UNDECOMPOSED)

    def compile(self, fn: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
        return self.captured(fn, args).program.module()


class WithTable(Handed):
    """One that has an op decomposed, by itself or by its adapter."""

    def __init__(self, *, itself: bool) -> None:
        self.decomposes_itself = itself

    def decompositions(self) -> Mapping[Any, Any]:
        return {torch.ops.aten.softplus.default: lambda x, beta=1, threshold=20: (x * beta).exp().log1p() / beta}


def handed(backend: Exporting, fn: Callable[..., Any], *options: str) -> list[str]:
    backend = backend.configured(options) if options else backend
    exported = backend.captured(fn, (torch.rand(2, 3, 4),))
    return [str(node.target) for node in exported.program.graph.nodes if node.op == "call_function"]


def instance_norm(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.instance_norm(x)


def test_a_norm_that_writes_to_nothing_is_handed_over_as_it_is() -> None:
    assert handed(Handed(), instance_norm) == ["aten.instance_norm.default"]


def test_what_is_written_to_is_a_copy_and_nothing_is_decomposed_for_it() -> None:
    assert handed(Handed(), lambda x: torch.nn.functional.softplus(x.add_(1))) == [
        "aten.clone.default",
        "aten.add_.Tensor",
        "aten.softplus.default",
    ]


def test_an_option_hands_over_core_aten() -> None:
    backend = Handed().configured(["decomposed"])
    assert backend.name == "handed+decomposed"
    assert "aten.instance_norm.default" not in handed(Handed(), instance_norm, "decomposed")


@pytest.mark.parametrize("itself", [False, True])
def test_a_table_is_used_once_by_the_adapter_or_by_the_compiler(itself: bool) -> None:
    ops = handed(WithTable(itself=itself), torch.nn.functional.softplus)
    assert (ops == ["aten.softplus.default"]) is itself
    assert handed(WithTable(itself=itself), torch.nn.functional.softplus, "undecomposed") == ["aten.softplus.default"]
    assert len(WithTable(itself=itself).tables()) == 1
    assert len(WithTable(itself=itself).configured(["decomposed"]).tables()) == 2
    assert WithTable(itself=itself).configured(["undecomposed"]).tables() == []


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "tvm", "executorch", "iree", "xla", "torch-mlir-linalg"])
def test_shipped_backends_have_the_options(name: str) -> None:
    assert load(f"{name}+decomposed").name == f"{name}+decomposed"
    assert f"torchstone[{name}+" not in load(f"{name}+decomposed").available().install
    with pytest.raises(InputError, match="it has decomposed"):
        load(f"{name}+fast")


def test_a_loop_that_pytorch_does_not_decompose_is_unsupported_and_no_failure_of_the_compiler() -> None:
    """``torch.export`` takes a loop that is given one tensor twice; making it functional refuses the same."""

    def loop(x: torch.Tensor) -> Any:
        return torch.while_loop(lambda a, b: a.sum() < 10, lambda a, b: (a + 1, b * 2), (x, x))

    with pytest.raises(BackendUnsupported, match="aliasing"):
        handed(Handed(), loop)
    assert handed(Handed(), lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))
