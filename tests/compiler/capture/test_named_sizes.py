"""Dims with an optimum, and what a captured program knows of the names of its sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone import Dim, compile
from torchstone.compiler.capture.export.frontend import capture
from torchstone.compiler.diagnostics import TorchstoneError, Unsupported
from torchstone.compiler.ir.sizes import SizeRange

N = Dim("n", min=2, opt=8, max=64)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"opt": 8}, r'Dim n: opt needs a max, the largest size: Dim\("n", opt=8, max=...\)'),
        ({"min": 4, "opt": 3, "max": 9}, "Dim n: min <= opt <= max must hold, got min 4, opt 3 and max 9"),
        ({"opt": 10, "max": 9}, "got min 0, opt 10 and max 9"),
        ({"min": 4, "max": 4}, "Dim n: max must be above min, got min 4 and max 4"),
    ],
)
def test_a_dim_that_is_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(TorchstoneError, match=message):
        Dim("n", **sizes)


def test_torch_export_takes_it() -> None:
    module = torch.nn.Linear(2, 2)
    program = torch.export.export(module, (torch.ones(3, 2),), dynamic_shapes=({0: N},))
    assert [(int(r.lower), int(r.upper)) for r in program.range_constraints.values()] == [(2, 64)]


def nested(*parts: Any, scale: Any) -> Any:
    return parts[0]["q"] + parts[1] * scale


@pytest.mark.parametrize("dim", [N, torch.export.Dim("n", min=2, max=64)])
def test_sizes_keep_their_names_in_containers_and_keywords(dim: Any) -> None:
    args, kwargs = ({"q": torch.ones(6)}, torch.ones(6)), {"scale": torch.ones(1)}
    captured = capture(nested, args, {"parts": ({"q": {0: dim}}, (dim,)), "scale": None}, kwargs)
    assert captured.size_ranges() == {"s0": SizeRange("n", 2, 8 if dim is N else 6, 64)}


def test_a_shapes_collection_names_sizes_too() -> None:
    x = torch.ones(6)
    shapes = torch.export.ShapesCollection()
    shapes[x] = {0: N}
    assert capture(torch.nn.Identity(), (x,), shapes).size_ranges() == {"s0": SizeRange("n", 2, 8, 64)}


def test_a_size_without_a_name_has_that_of_its_symbol() -> None:
    captured = capture(lambda x: x + 1, (torch.ones(6),), ({0: torch.export.Dim.DYNAMIC(min=3, max=9)},))
    assert captured.size_ranges() == {"s0": SizeRange("s0", 3, 6, 9)}


def test_an_example_outside_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match=r"size 0 of x\['q'\] is 200 in the example, and 2\*n takes 4 to 128: give"):
        capture(lambda x: x["q"] + 1, ({"q": torch.ones(200)},), {"x": {"q": {0: 2 * N}}})


@pytest.mark.parametrize("shapes", [({3: N},), ({"a": N},), ({0: 2},), (N,), ({0: N}, None), {"y": {0: N}}, [{0: "n"}]])
def test_what_torch_export_refuses_it_refuses(shapes: Any) -> None:
    with pytest.raises(Unsupported, match=r"torch\.export"):
        capture(lambda x: x + 1, (torch.ones(6),), shapes)


def test_two_optima_for_one_size_are_refused() -> None:
    other = Dim("n", min=2, opt=9, max=64)
    with pytest.raises(TorchstoneError, match="Dim n: opt is 8 in one place and 9 in another"):
        compile(lambda x, y: x + y, (torch.ones(6), torch.ones(6)), "evaluator", ({0: N}, {0: other}))
