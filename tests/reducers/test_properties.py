"""Reductions of random programs: whatever the program and the bug, these hold."""

from __future__ import annotations

import itertools
import zlib

import pytest
import torch
from cases import judge, reduced, shrunk

from tests import mutants
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.fuzz.generator.catalog import select_rules
from torchstone.fuzz.generator.generate import nth_program
from torchstone.reducers import order
from torchstone.reducers.edit import has_special_values, tidy
from torchstone.reducers.signature import signature

SEEDS = range(6)


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_swapped_sub_comes_down_to_one_sub_of_one_element(seed):
    pool = select_rules(("add", "sub", "mul", "exp", "sum", "transpose", "reshape", "unsqueeze", "neg", "cat", "mm"))
    index = 0
    trial = judge(mutants.swapped_sub)
    while trial(start := nth_program(seed, index, pool, must=select_rules(("sub",)))).kind != "value":
        index += 1
    found = reduced(start, mutants.swapped_sub)
    assert [call.target for call in found.value.program.calls] == ["torch.sub"]
    assert max(tensor.numel() for tensor in found.value.args) == 1
    assert signature(trial(found.value)) == signature(trial(start))
    assert order.size(found.value) <= order.size(tidy(start))
    again = reduced(start, mutants.swapped_sub)
    assert again.value.to_bytes() == found.value.to_bytes()


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_a_write_that_is_lost_through_a_view_comes_down_to_the_view_and_the_write(seed):
    views = select_rules(("select", "narrow", "transpose"))
    pool, writes = (*views, *select_rules(("add", "sin", "cat"))), select_rules(("copy_",))
    backend = mutants.lost_through_a_view
    trial = judge(backend)
    cases = (nth_program(seed, index, pool, must=writes) for index in itertools.count())
    start = next(case for case in cases if len(case.program.calls) > 3 and trial(case).failed)
    view, write = reduced(start, backend).value.program.calls
    assert view.target in {rule.target for rule in views}
    assert write.target == "torch.Tensor.copy_" and write.args[0] == Ref(view.result)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_predicate_without_structure_still_ends_in_something_that_satisfies_it(seed):
    start = tidy(nth_program(seed, 7))

    def interesting(candidate):
        return candidate.to_bytes() == start.to_bytes() or zlib.crc32(candidate.to_bytes()) % 3 == 0

    found = shrunk(start, interesting)
    assert interesting(found)
    assert order.size(found) <= order.size(start)
    assert has_special_values(found) is not None


@pytest.mark.parametrize(("value", "special"), [(1.0, False), (float("nan"), True)])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.bfloat16, torch.complex64])
def test_special_values_are_known_of_every_dtype(dtype, value, special):
    program = Program(("x",), (Call("torch.clone", (Ref("x"),), {}, "y"),), Ref("y"))
    assert has_special_values(Case(program, {"x": torch.tensor([value]).to(dtype)}, "t", "clone", "t")) is special
