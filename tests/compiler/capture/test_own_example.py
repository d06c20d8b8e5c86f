"""An executable takes its own example, also where its sums are rounded otherwise than eager's."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.sampling import covering
from torchstone.compiler.diagnostics import GuardError, TorchstoneError, Unsupported
from torchstone.compiler.driver import compile

# Values whose mean and sum come out otherwise when they are added in another order: in half of the cases or so.
EXAMPLES = [torch.rand(n, generator=torch.Generator().manual_seed(n)) * 3 - 1 for n in (64, 100, 333)]
EXAMPLES.append(torch.arange(6.0).reshape(2, 3) * 0.3 - 0.5)


def noted(x):
    out = {}
    out[x.mean().item()] = x
    return list(out.values())


def remembered(x):
    seen = {x.sum().item()}
    return [n for n in (x.sum().item(), 2.0) if n in seen and n == x.sum().item()][:0], x


def written(x):
    out = np.zeros(2)
    out[0] = x.mean().item()
    return x * float(out[1])


PROGRAMS: dict[str, Callable[..., Any]] = {
    "rounded text": lambda x: f"{x.mean().item():.2f}",
    "rounded": lambda x: round(x.sum().item(), 2),
    "format": lambda x: format(x.mean().item(), ".3f"),
    "text": lambda x: len(str(x.mean().item())) * 0 + x,
    "json": lambda x: len(json.dumps({"loss": x.mean().item()})) * 0 + x,
    "bytes": lambda x: len(struct.pack("d", x.sum().item())) * x,
    "key": noted,
    "in a set": remembered,
    "in an array": written,
    "several": lambda x: f"{x.mean().item():.1f} {x.std().item():.1f} {x.sum().item():.0f}",
}


@pytest.mark.few(9)
@pytest.mark.parametrize(("name", "target"), covering(PROGRAMS, ["evaluator", "linalg"], strength=1))
def test_an_example_whose_numbers_are_rounded_otherwise_is_taken(name: str, target: str) -> None:
    program = PROGRAMS[name]
    for x in EXAMPLES:
        exe, expected = compile(program, (x,), target), program(x)
        for _ in range(2):
            got = exe(x)
            torch.testing.assert_close(got, expected) if not isinstance(expected, str) else None
            assert isinstance(expected, list | torch.Tensor | tuple) or got == expected
        with pytest.raises(GuardError, match="test_own_example"):
            exe(x + 10)


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_a_text_is_asked_again_at_each_call(target: str) -> None:
    def program(x):
        mean = x.mean().item()
        return f"{mean:.1f} {mean:>8.0f}", round(mean, 1), x * mean

    exe = compile(program, (torch.full((4,), 0.26),), target)
    for other in (0.26, 0.2600001, 0.27, 0.34):
        torch.testing.assert_close(exe(torch.full((4,), other))[1:], program(torch.full((4,), other))[1:])
        assert exe(torch.full((4,), other))[0] == program(torch.full((4,), other))[0]
    for other in (0.36, -0.25, float("nan")):
        with pytest.raises(GuardError, match=r"f\"{mean:.1f}"):
            exe(torch.full((4,), other))


# Numbers between the sums that different orders give: eager decides one way, another order may decide the other.
EDGES = [x.mean().item() for x in EXAMPLES]
DECIDING: dict[str, Callable[[float], Callable[..., Any]]] = {
    "a branch": lambda edge: lambda x: x * 2 if x.mean().item() > edge else x - 1,
    "equality": lambda edge: lambda x: x * 2 if x.mean().item() == edge else x - 1,
    "a branch on a tensor": lambda edge: lambda x: x * 2 if x.mean() > edge else x - 1,
    "a whole number": lambda edge: lambda x: [x] * int(x.mean().item() - edge >= 0),
    "a loop": lambda edge: lambda x: [x for n in range(3) if x.mean().item() * n <= edge * n],
}


@pytest.mark.parametrize(("name", "target"), covering(DECIDING, ["evaluator", "linalg"], strength=1))
def test_an_example_on_an_edge_is_right_or_refused_when_compiled(name: str, target: str) -> None:
    for x, edge in zip(EXAMPLES, EDGES, strict=True):
        program = DECIDING[name](edge)
        try:
            exe = compile(program, (x,), target)
        except Unsupported as error:
            assert "example" in str(error) and "test_own_example" in str(error)
            continue
        torch.testing.assert_close(exe(x), program(x))


def huge(x, n):
    return x * ((n * 3_000_000_000 * 3_000_000_000) % 7)


CHECKED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "an int over 2**62": (huge, (torch.ones(3), 5)),
    "sizes": (lambda x, s: torch.split(x, s.tolist()), (torch.arange(6.0), torch.tensor([1, 5]))),
}


@pytest.mark.parametrize(("name", "target"), covering(CHECKED, ["evaluator", "linalg", "tosa", "tensorrt"], strength=1))
def test_the_example_is_tried_and_nothing_is_left_of_that(name: str, target: str) -> None:
    program, args = CHECKED[name]
    torch.manual_seed(3)
    state = torch.get_rng_state()
    try:
        exe = compile(program, args, target)
    except TorchstoneError:
        assert target not in ("evaluator", "linalg")
        return
    finally:
        assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(3)
    got = exe(*args)
    torch.manual_seed(3)
    torch.testing.assert_close(got, program(*args))
