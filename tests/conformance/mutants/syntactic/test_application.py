"""A mutation in the running compiler: in place, and out again."""

from __future__ import annotations

import pytest
import torch

from torchstone.compiler.driver import compile
from torchstone.conformance.mutants.syntactic import population
from torchstone.conformance.mutants.syntactic.application import LiveCode, NotApplicable, import_all, module_of
from torchstone.conformance.mutants.syntactic.enumerate import mutations
from torchstone.conformance.mutants.syntactic.mutation import REACHED, Mutation


@pytest.fixture(scope="module")
def live() -> LiveCode:
    import_all()
    return LiveCode()


def mutation_of(path: str, before: str, after: str) -> tuple[Mutation, str]:
    """The one mutation of a file that makes ``after`` of what is ``before``."""
    source = (population.ROOT / path).read_text()
    (found,) = (one for one in mutations(path, source) if one.diff(source) == (before, after))
    return found, source


ROWS = [
    pytest.param(
        "transforms/expansions/core/comparison.py",
        "return _part(b, x, lambda v: b.eq(v, const(b, v, math.inf)))",
        "return _part(b, x, lambda v: b.ne(v, const(b, v, math.inf)))",
        torch.isposinf,
        id="a rule, and a lambda in it",
    ),
    pytest.param(
        "lowering/linalg/elementwise.py",
        "return lambda scope, a, b: s.compare_float(relation, a, b)",
        "return lambda scope, a, b: s.compare_float(relation, b, a)",
        lambda x: x < 1,
        id="a closure that a table holds",
    ),
]


@pytest.mark.parametrize(("path", "before", "after", "fn"), ROWS)
def test_a_mutation_is_in_the_compiler_and_out_of_it_again(live, path, before, after, fn):
    mutation, source = mutation_of(path, before, after)
    x = torch.tensor([0.0, float("inf"), 2.0])
    codes = [(function, function.__code__) for function, _ in live.swaps(mutation, source)]
    assert codes
    reached = []
    with live.mutated(mutation, source, lambda: reached.append(1)):
        assert all(function.__code__ is not code for function, code in codes)
        wrong = compile(fn, (x,))(x)
    assert reached and not torch.equal(wrong, fn(x))
    assert all(function.__code__ is code for function, code in codes)
    assert not hasattr(module_of(mutation), REACHED)
    assert torch.equal(compile(fn, (x,))(x), fn(x))


def test_it_is_taken_out_after_an_error_too(live):
    mutation, source = mutation_of(*ROWS[0].values[:3])
    ((function, _), *_) = live.swaps(mutation, source)
    code = function.__code__
    with pytest.raises(ZeroDivisionError), live.mutated(mutation, source, lambda: None):
        raise ZeroDivisionError
    assert function.__code__ is code


def test_code_that_no_function_has(live):
    mutation, source = mutation_of(*ROWS[0].values[:3])
    moved = "\n" + source
    (moved_mutation,) = (one for one in mutations(mutation.path, moved) if one.fingerprint == mutation.fingerprint)
    with pytest.raises(NotApplicable, match=r"comparison.py:\d+: no function that lives"):
        live.swaps(moved_mutation, moved)
