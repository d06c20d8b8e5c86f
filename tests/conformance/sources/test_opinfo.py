"""The op database as cases: the same for everyone, every time, and faithful to what the database calls."""

from __future__ import annotations

import random
import warnings

import numpy
import pytest
import torch

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.sources import opinfo, sampling
from torchstone.conformance.sources.tracing import NotExpressible, record


def cases(op: str, dtype: str = "float32", limit: int | None = None) -> list[Case]:
    found = list(opinfo.iterate([op], [dtype], limit))
    assert all(isinstance(entry, Case) for entry in found), found
    return [entry for entry in found if isinstance(entry, Case)]


def test_names_tell_variants_apart() -> None:
    names = opinfo.op_names()
    assert len(names) == len(set(names)) > 650
    assert names == sorted(names)
    assert {"add", "nn.functional.relu", "softmax.with_dtype", "linalg.norm.subgradients_at_zero", "T"} <= set(names)


def test_each_op_has_its_dtypes() -> None:
    assert opinfo.dtypes_of("linalg.det") == ["float32", "float64", "complex64", "complex128"]
    assert "bool" in opinfo.dtypes_of("logical_and")


def test_unknown_names_are_told_at_once() -> None:
    with pytest.raises(UnknownName, match=r'unknown op "sofmax".*did you mean "softmax"'):
        opinfo.iterate(["sofmax"])
    with pytest.raises(UnknownName, match=r'unknown dtype "float31".*did you mean "float'):
        opinfo.iterate(dtypes=["float31"])
    with pytest.raises(InputError, match=r'no op matches "nope.*"'):
        opinfo.iterate(["nope*"])


def test_patterns_select_ops() -> None:
    assert opinfo.select(["linalg.norm*"]) == ["linalg.norm", "linalg.norm.subgradients_at_zero"]


def test_an_op_becomes_a_call_of_its_public_name() -> None:
    case = cases("softmax.with_dtype", limit=1)[0]
    assert case.id == "opinfo:softmax.with_dtype:float32:0"
    assert [call.target for call in case.program.calls] == ["torch.softmax"]
    assert case.program.calls[0].kwargs["dtype"] is torch.float64


def test_what_the_database_computes_the_program_computes() -> None:
    info = opinfo.info_of("addcmul")
    with sampling.seeded("addcmul:float32"):
        samples = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
    for case, sample in zip(cases("addcmul"), samples, strict=True):
        wanted = info.op(sample.input, *sample.args, **sample.kwargs)
        assert torch.equal(case.program(*case.fresh_args()), wanted)


def test_functions_of_the_database_are_recorded() -> None:
    for op in ("expand", "sum_to_size", "T", "where", "polygamma.polygamma_n_1", "einsum", "nn.functional.embedding"):
        info = opinfo.info_of(op)
        with sampling.seeded(f"{op}:float32"):
            sample = next(iter(info.sample_inputs("cpu", torch.float32, requires_grad=False)))
        case = cases(op, limit=1)[0]
        wanted = info.op(sample.input, *sample.args, **sample.kwargs)
        assert torch.equal(case.program(*case.fresh_args()), wanted), op


def test_a_seed_is_recorded_only_where_numbers_are_drawn() -> None:
    drawn = cases("bernoulli", limit=1)[0]
    assert [call.target for call in drawn.program.calls] == ["torch.manual_seed", "torch.bernoulli"]
    plain = cases("item", limit=1)[0]
    assert [call.target for call in plain.program.calls] == ["torch.Tensor.item"]


def test_the_same_tensor_twice_is_one_input() -> None:
    x = torch.ones(2)
    program, inputs = record(lambda a, b: a + b, (x, x), {})
    assert list(inputs) == ["x0"]
    assert program(torch.tensor([1.0, 2.0])).tolist() == [2, 4]


def test_layouts_are_kept() -> None:
    factors = cases("linalg.lu_solve", limit=1)[0].args[0]
    assert factors.shape == (3, 3)
    assert factors.stride() == (1, 3)


def test_what_cannot_be_expressed_is_untested_with_the_reason() -> None:
    reasons = {
        "sparse.sampled_addmm": "a sparse_csr tensor is not expressible",
        "nn.functional.triplet_margin_with_distance_loss": "argument: a torch.nn",
        "jiterator_unary": "eager raises AssertionError: Jiterator is only supported on CUDA",
    }
    for op, reason in reasons.items():
        entry = next(entry for entry in opinfo.iterate([op], ["float32"]) if isinstance(entry, Untested))
        assert entry.reason.startswith(reason), entry
        assert entry.id == f"opinfo:{op}:float32:{entry.index}"


def test_a_limit_takes_the_first_samples_of_each_dtype() -> None:
    some = list(opinfo.iterate(["add"], ["float32", "int64"], 2))
    assert [entry.id for entry in some] == [f"opinfo:add:{d}:{i}" for d in ("float32", "int64") for i in (0, 1)]
    every = cases("add")
    assert [entry.to_bytes() for entry in some if isinstance(entry, Case)][:2] == [c.to_bytes() for c in every[:2]]


def test_sampling_leaves_the_callers_generators_alone() -> None:
    states = random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    threads = torch.get_num_threads()
    cases("bernoulli", limit=2)
    assert states == (random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    assert torch.get_num_threads() == threads


def test_what_happens_between_two_cases_does_not_change_the_next() -> None:
    quiet = [case.to_bytes() for case in cases("nn.functional.linear", limit=5)]
    loud = []
    for case in opinfo.iterate(["nn.functional.linear"], ["float32"], 5):
        assert isinstance(case, Case)
        loud.append(case.to_bytes())
        torch.manual_seed(99), random.seed(99), torch.rand(3)
    assert loud == quiet


def test_one_case_by_its_coordinates() -> None:
    assert opinfo.case("add", "float32", 3).to_bytes() == cases("add")[3].to_bytes()
    with pytest.raises(InputError, match="no sample 10000 for float32"):
        opinfo.case("add", "float32", 10_000)
    with pytest.raises(InputError, match=r"linalg\.det has no samples for int64 \(it has float32"):
        opinfo.case("linalg.det", "int64", 0)
    with pytest.raises(InputError, match="cannot be expressed as a program: a sparse_csr"):
        opinfo.case("sparse.sampled_addmm", "float32", 0)


def test_recording_names_what_it_cannot_follow() -> None:
    outside = torch.ones(2)
    with pytest.raises(NotExpressible, match="neither an argument nor the result of a call"):
        record(lambda x: x + outside, (torch.ones(2),), {})
    with pytest.raises(NotExpressible, match="made outside the recorded calls"):
        record(lambda x: torch.nn.Parameter(torch.ones(1)), (torch.ones(2),), {})
    with pytest.raises(NotExpressible, match="returns a str"):
        record(lambda x: "text", (torch.ones(2),), {})


def test_recording_drops_what_nothing_depends_on() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.exp(x)
        y = x.clone()
        y.add_(x.shape[0])
        y[0] = 5
        return y

    program, _ = record(function, (torch.ones(2),), {})
    assert [call.target.rpartition(".")[2] for call in program.calls] == ["clone", "add_", "__setitem__"]
    x = torch.tensor([1.0, 2.0])
    assert program(x).tolist() == [5, 4]
    assert program.outputs == Ref("r1")


def test_enumeration_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for op in ("qr", "sparse.mm.reduce", "norm"):
            list(opinfo.iterate([op], ["float32"], 3))
