"""The same seed gives eager's numbers, and leaves its generator state, however tensors lie in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.sampling import covering
from torchstone import compile
from torchstone.compiler.diagnostics import GuardError, Unsupported


def numbers(*shape: int) -> Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape) / (1 + torch.Size(shape).numel())


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "row-major": lambda: numbers(5, 7),
    "15 transposed": lambda: numbers(3, 5).t(),  # from 16 on, eager draws normal numbers in vectors
    "16 transposed": lambda: numbers(4, 4).t(),
    "permuted": lambda: numbers(2, 3, 5).permute(2, 0, 1),
    "channels last": lambda: numbers(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "gaps": lambda: numbers(9, 6)[::2],
    "gaps, transposed": lambda: numbers(6, 9)[:, ::2].t(),
    "offset": lambda: numbers(6, 7)[1:, 2:].t(),
    "expanded": lambda: numbers(5, 1).expand(5, 6),
    "one column": lambda: numbers(1, 20).t(),
    "0-d": lambda: numbers(1).squeeze(),
    "empty": lambda: numbers(0, 4).t(),
}


def _into(view: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        out = x.clone()
        view(out)
        return out

    return program


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "rand_like": torch.rand_like,
    "randn_like, row-major": lambda x: torch.randn_like(x, memory_format=torch.contiguous_format),
    "randint_like": lambda x: torch.randint_like(x, 10),
    "bernoulli": torch.bernoulli,
    "bernoulli of one p": lambda x: torch.bernoulli(x, 0.3),
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(x),
    "uniform_": lambda x: torch.empty_like(x).uniform_(),
    "normal_": lambda x: torch.empty_like(x).normal_(),
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
    "dropout": lambda x: F.dropout(x, 0.4),
    "alpha dropout": lambda x: F.alpha_dropout(x + 1, 0.4, training=True),
    "normal": lambda x: torch.normal(x, 0.5),
    "normal of two": lambda x: torch.normal(x, x.contiguous()),
    "poisson": lambda x: torch.poisson(x * 4),
    "rrelu": lambda x: F.rrelu(x - 0.5, training=True),
    "of a result": lambda x: F.dropout(x + x, 0.3) * torch.rand_like(x),
    "the argument": lambda x: x.normal_(),
    "into rows": _into(lambda x: x[::2].normal_() if x.dim() else x.normal_()),
    "into a transpose": _into(lambda x: x.transpose(0, -1).normal_() if x.dim() else x),
    "out": lambda x: torch.bernoulli(x, out=torch.empty_like(x)),
    "out of no operand": lambda x: torch.rand(x.shape, out=torch.empty_like(x)),
    "into gaps": lambda x: torch.empty_strided(x.shape, [2 * s for s in x.contiguous().stride()]).uniform_(),
}


def seeded(program: Callable[..., Any], x: Tensor) -> tuple[Any, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return program(x), torch.get_rng_state()


@pytest.mark.parametrize(("program", "layout"), covering([*PROGRAMS], [*LAYOUTS], strength=1))
def test_static(program: str, layout: str) -> None:
    fn, make = PROGRAMS[program], LAYOUTS[layout]
    given, same = make(), make()
    if fn is PROGRAMS["the argument"] and layout == "expanded":
        return  # eager refuses it
    wanted, state = seeded(fn, given)
    got, after = seeded(compile(fn, (make(),), target="linalg"), same)
    assert torch.equal(got, wanted) and torch.equal(same, given) and torch.equal(after, state)


@pytest.mark.parametrize("program", ["rand_like", "randint_like", "bernoulli", "dropout", "of a result"])
def test_dynamic(program: str) -> None:
    fn = PROGRAMS[program]
    any_size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    executable = compile(fn, (numbers(5, 7).t(),), target="linalg", dynamic_shapes=(any_size,))
    for shape in ((5, 7), (3, 4), (20, 30)):
        x = numbers(*shape).t()
        wanted, state = seeded(fn, x)
        got, after = seeded(executable, x)
        assert torch.equal(got, wanted) and torch.equal(after, state)
    with pytest.raises(GuardError, match="lies in memory"):
        executable(numbers(5, 7))


def test_dynamic_in_place_is_refused_where_it_is_not_told() -> None:
    any_size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    for fn in (lambda x: torch.bernoulli(x, 0.3), lambda x: x.clone().bernoulli_(0.3), lambda x: x.normal_()):
        with pytest.raises(Unsupported, match="not row-major"):
            compile(fn, (numbers(5, 7).t(),), target="linalg", dynamic_shapes=(any_size,))


@pytest.mark.parametrize("example", [numbers(5, 7), numbers(7, 5).t()])
@pytest.mark.parametrize("other", [numbers(5, 7), numbers(7, 5).t(), numbers(5, 14)[:, ::2]])
def test_another_layout_than_the_example_s_is_refused(example: Tensor, other: Tensor) -> None:
    executable = compile(torch.rand_like, (example,), target="linalg")
    if other.stride() == example.stride():
        assert torch.equal(seeded(executable, other)[0], seeded(torch.rand_like, other)[0])
        return
    with pytest.raises(GuardError, match="lies in memory"):
        executable(other)


def test_what_a_layout_does_not_reach_is_not_guarded() -> None:
    executable = compile(lambda x, w: F.dropout(x @ w, 0.3), (numbers(4, 5), numbers(5, 6)), target="linalg")
    wanted, _ = seeded(lambda x: F.dropout(x @ numbers(5, 6), 0.3), numbers(5, 4).t())
    got, _ = seeded(lambda x: executable(x, numbers(5, 6)), numbers(5, 4).t())
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("batch_first", [False, True])
def test_an_encoder_layer_in_training(batch_first: bool) -> None:
    torch.manual_seed(0)
    layer, x = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first), torch.randn(5, 3, 8)
    wanted, state = seeded(layer, x)
    got, after = seeded(compile(layer, (x,), target="linalg"), x)
    torch.testing.assert_close(got, wanted)
    assert torch.equal(after, state)


@pytest.mark.parametrize("program", ["rand_like", "bernoulli", "dropout", "normal", "uniform_"])
def test_torch_compile(program: str) -> None:
    torch._dynamo.reset()
    fn, x = PROGRAMS[program], numbers(5, 7).t()
    wanted, state = seeded(fn, x)
    got, after = seeded(torch.compile(fn, backend="torchstone"), x)
    assert torch.equal(got, wanted) and torch.equal(after, state)
