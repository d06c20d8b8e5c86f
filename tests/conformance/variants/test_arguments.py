"""Other arguments: what a sample leaves out, the numbers that kernels treat in a way of their own, refused ones."""

from __future__ import annotations

import functools
import math
import os

import torch
from variant_cases import asked, case

from torchstone.conformance.backends import load
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.literals import leaves
from torchstone.conformance.sources import find_case
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.forked import answers


def numbers(given: Case) -> set[object]:
    return {
        value
        for call in given.program.calls
        for value in leaves((call.args, call.kwargs))
        if type(value) in (int, float)
    }


def test_arguments_that_are_left_out_are_given() -> None:
    scaled = asked(case("torch.add", torch.ones(2), torch.ones(2)), "arguments")
    assert torch.equal(scaled.program(*scaled.args)[0], torch.full((2,), 3.0)) and scaled.program.calls[0].kwargs
    filled = asked(case("torch.nan_to_num", torch.ones(9)), "arguments")
    results = filled.program(*filled.args)
    assert any(tensor.isnan().any() for tensor in filled.args) and any((found == 0.75).any() for found in results)
    assert isinstance(apply(case("torch.neg", torch.ones(2)), "arguments"), Untested)


def test_an_exponent_is_each_number_that_kernels_treat_apart() -> None:
    samples = [asked(case("torch.pow", torch.rand(3) + 1, args=(3.5,), index=index), "arguments") for index in range(3)]
    given, found = samples[0], set().union(*map(numbers, samples))
    assert {0.5, -0.5, 0.0, 1.0, 2.0, math.inf} <= found and 3.5 not in found
    assert any(tensor.isneginf().any() for tensor in given.args), "special values beside them"


def test_sizes_are_0_1_and_2_where_eager_takes_them() -> None:
    given = asked(case("torch.nn.functional.adaptive_max_pool2d", torch.randn(1, 2, 4, 4), args=((3, 3),)), "arguments")
    assert {0, 1, 2} <= {size for call in given.program.calls for size in call.args[1]}
    loss = asked(case("torch.nn.functional.mse_loss", torch.randn(3), torch.randn(3)), "arguments")
    assert {"none", "sum"} <= {call.kwargs.get("reduction") for call in loss.program.calls}


def test_what_ends_eager_ends_a_fork() -> None:
    questions = [lambda: True, lambda: os._exit(3), lambda: 1 / 0 > 0, lambda: True, lambda: True]
    assert answers(questions, most=9) == [True, False, False, True, True]
    assert answers(questions, most=2) == [True, False, False, True]
    pool = case("torch.nn.functional.avg_pool2d", torch.ones(1, 2, 4, 4, dtype=torch.int64), args=(2,))
    assert 0 not in {call.kwargs.get("divisor_override") for call in asked(pool, "arguments").program.calls}


def test_a_fork_waits_for_no_threads_of_its_parent(request) -> None:
    request.addfinalizer(functools.partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(2)  # a fork that shares work out to two waits for the one that it does not have
    assert answers([lambda: torch.get_num_threads() == 1], most=1) == [True]
    assert torch.get_num_threads() == 2


class Accepting:
    """Takes a dim that there is not for the last one."""

    name = "accepting"

    def compile(self, fn, args):
        def run(x):
            return x.sum(min(fn.calls[0].args[1], x.dim() - 1))

        return run


def test_a_dim_that_there_is_not_has_to_be_refused() -> None:
    given = asked(case("torch.sum", torch.randn(3, 2), args=(1,)), "outside")
    found = run_case(given, Accepting())
    assert found.outcome == "mismatch" and found.kind == "accepted"
    assert run_case(given, load("linalg")).outcome == "pass"


def test_offsets_that_do_not_begin_with_0_are_asked() -> None:
    """What the first number may be, the last one does not tell."""

    class Lax:
        name = "lax"

        def compile(self, fn, args):
            return lambda indices, weight, offsets: fn(indices, weight, torch.cat([offsets[:1] * 0, offsets[1:]]))

    args = (torch.tensor([0, 1, 2, 1]), torch.randn(3, 2), torch.tensor([0, 2]))
    given = asked(case("torch.nn.functional.embedding_bag", *args), "outside")
    found = run_case(given, Lax())
    assert (found.outcome, found.kind) == ("mismatch", "accepted")
    assert run_case(given, load("linalg")).outcome == "pass"


def test_the_first_index_out_of_range_is_asked() -> None:
    class Lax:
        name = "lax"

        def compile(self, fn, args):
            return lambda x, index: x[index.clamp(max=len(x))] if int(index.max()) != len(x) else x[index - 1]

    given = asked(case("torch.take", torch.randn(5), torch.tensor([1, 2])), "outside")
    assert run_case(given, Lax()).outcome == "mismatch"
    counted = asked(case("torch.bincount", torch.tensor([1, 2])), "outside")
    assert run_case(counted, load("eager")).outcome == "pass", "-1 is refused"


def test_a_dtype_is_any_by_the_sample() -> None:
    cast = case("torch.Tensor.to", torch.randn(3), args=(torch.float16,))
    programs = [str(asked(cast.replace(index=index), "arguments").program) for index in range(4)]
    for name in ("float8_e4m3fn", "uint16", "uint32", "uint64", "complex128"):
        assert any(f"torch.{name}" in program for program in programs), name


def test_other_arguments_meet_empty_inputs() -> None:
    """What a correction of -1 makes of no elements is seen there alone."""
    given = case("torch.var", torch.randn(4, 3), args=(0,)).replace(index=1)
    assert any(tensor.numel() == 0 for tensor in asked(given, "arguments").args)


def test_what_a_sample_gives_is_left_out_too() -> None:
    given = find_case("opinfo:var:float32:4")  # dim and unbiased by name
    names = [call.kwargs.keys() for call in asked(given, "arguments").program.calls]
    assert any(given.program.calls[0].kwargs.keys() - some for some in names)


def test_parts_that_write_to_their_inputs_share_none() -> None:
    found = asked(find_case("opinfo:exponential:float32:0"), "arguments")
    written = [call.args[0].name for call in found.program.calls if call.target.endswith("exponential_")]
    assert len(written) == len(set(written)) > 2
