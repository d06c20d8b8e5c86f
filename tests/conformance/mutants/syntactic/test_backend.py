"""A mutation as a backend: it is in the process from the first compilation on, whichever way that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from torchstone.conformance.mutants.syntactic import backend as syntactic
from torchstone.conformance.mutants.syntactic import population
from torchstone.conformance.mutants.syntactic.enumerate import mutations

X = torch.tensor([0.0, float("inf"), 2.0])


@pytest.fixture
def mutated() -> Iterator[syntactic.MutatedSource]:
    """``isposinf`` that holds for every other number."""
    path = "transforms/expansions/core/comparison.py"
    source = (population.ROOT / path).read_text()
    after = "return _part(b, x, lambda v: b.ne(v, const(b, v, math.inf)))"
    (mutation,) = (one for one in mutations(path, source) if one.diff(source)[1] == after)
    yield syntactic.linalg.configured([mutation.fingerprint])
    for applied in syntactic._APPLIED.values():
        applied.__exit__(None, None, None)
    syntactic._APPLIED.clear()


def of_many(backend: syntactic.MutatedSource) -> Callable[..., torch.Tensor]:
    (compiled,) = backend.compile_many([(torch.isposinf, (X,))])
    assert not isinstance(compiled, Exception)
    return compiled


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "compiling",
    [
        pytest.param(lambda backend: backend.compile(torch.isposinf, (X,)), id="compile"),
        pytest.param(lambda backend: backend.compile_dynamic(torch.isposinf, (X,), ((0,),)), id="dynamic"),
        pytest.param(lambda backend: backend.compile_optimized(torch.isposinf, (X,)), id="optimized"),
        pytest.param(of_many, id="many"),
    ],
)
def test_every_way_of_compiling_has_the_mutation(mutated, compiling):
    assert torch.equal(compiling(mutated)(X), ~torch.isposinf(X))
