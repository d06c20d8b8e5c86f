"""Several samples of an op in one program, their gradients, and a sample in every dtype."""

from __future__ import annotations

import pytest
import torch

from torchstone.conformance import planted
from torchstone.conformance.backends import load
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.oracle.parts import parts_of
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.selection.features import features
from torchstone.conformance.sources import find_case, opinfo
from torchstone.conformance.variants.apply import apply

FIRST = find_case("opinfo:nn.functional.gelu:float32:0")


def asked(case: Case, name: str) -> Case:
    changed = apply(case, name)
    assert isinstance(changed, Case), changed
    return changed


def test_each_sample_has_its_own_call_and_the_arguments_of_all_are_met() -> None:
    first = find_case("opinfo:argmax:float32:0")
    whole = asked(first, "samples")
    every = [case for case in opinfo.iterate(["argmax"], ["float32"]) if isinstance(case, Case)]
    indices = [int(call.result.rpartition("_")[2]) for call in whole.program.calls]
    assert len(indices) > 2 and indices == sorted(indices) and 0 in indices
    assert [call.args[1:] for call in whole.program.calls] == [every[at].program.calls[0].args[1:] for at in indices]
    met = set().union(*(features(every[at]) for at in indices))
    assert all({fact for fact in features(case) if fact[0] != "shapes"} <= met for case in every)


def test_the_gradients_of_each_sample_are_a_part() -> None:
    whole = asked(FIRST, "gradients")
    taken = [call for call in whole.program.calls if call.target == "torch.autograd.grad"]
    assert len(parts_of(whole.program, whole.args)) == len(taken) > 2
    assert any(call.result.endswith("_ties") for call in taken)


def test_a_sample_is_asked_in_the_other_dtypes() -> None:
    whole = asked(find_case("opinfo:sub:float32:0"), "dtypes")
    found = {str(tensor.dtype).removeprefix("torch.") for tensor in whole.args}
    assert {"float64", "float16", "bfloat16", "complex64", "int64", "int32", "int8", "uint8"} <= found
    assert "float32" not in found


def test_integers_are_asked_where_an_op_takes_them_with_a_dtype() -> None:
    found = asked(find_case("opinfo:mean:float32:1"), "dtypes")
    named = next(call for call in found.program.calls if call.result.endswith("int64_named"))
    assert named.kwargs["dtype"] is torch.float32
    assert found.inputs["x0_int64_named"].dtype is torch.int64


@pytest.mark.parametrize("name", ["samples", "gradients", "dtypes"])
def test_what_draws_random_numbers_is_asked_call_by_call(name: str) -> None:
    assert isinstance(apply(find_case("opinfo:bernoulli:float32:0"), name), Untested)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("bug", "op", "name"),
    [
        pytest.param("gelu-gradient-of-the-other-mode", "nn.functional.gelu", "gradients", marks=pytest.mark.torture),
        ("complex-log-cut", "log", "dtypes"),
        ("hardtanh-gradient-at-bound", "nn.functional.relu6", "gradients"),
        pytest.param("mse-gradient-by-batch", "nn.functional.mse_loss", "gradients", marks=pytest.mark.torture),
    ],
)
def test_a_bug_is_found_by_one_case(bug: str, op: str, name: str) -> None:
    changed = asked(find_case(f"opinfo:{op}:float32:0"), name)
    assert run_case(changed, load("eager")).outcome == "pass"
    assert run_case(changed, planted.load(bug)).outcome == "mismatch"


def test_a_backend_that_refuses_a_part_is_asked_for_the_others() -> None:
    from tests.conformance.execution.test_run_case import Fake
    from torchstone.conformance.backends.protocol import BackendUnsupported

    whole = asked(find_case("opinfo:argmax:float32:0"), "samples")

    def narrow(fn, args, wrong=0):
        if any(tensor.dim() == 0 for tensor in args):
            raise BackendUnsupported("0-d")
        return lambda *tensors: torch.utils._pytree.tree_map(lambda leaf: leaf + wrong, fn(*tensors))

    verdict = run_case(whole, Fake(narrow))
    assert verdict.outcome == "unsupported" and " parts: " in verdict.message
    assert verdict.evidence["parts"]["pass"] and verdict.evidence["parts"]["unsupported"]
    verdict = run_case(whole, Fake(lambda fn, args: narrow(fn, args, 1)))
    assert verdict.outcome == "mismatch" and "the part output[" in verdict.message and " alone: " in verdict.message


@pytest.mark.few(2)
@pytest.mark.parametrize("variant", ["samples", "gradients", "dtypes", "operands", "layouts"])
def test_the_id_is_that_of_the_sample_that_was_asked_for(variant: str) -> None:
    assert asked(find_case("opinfo:sum:float32:5"), variant).id == f"opinfo:sum:float32:5:{variant}"


def test_gradients_are_asked_where_they_round_and_where_they_are_conjugated() -> None:
    whole = asked(find_case("opinfo:mul:float32:0"), "dtypes")
    differentiated = {
        call.result.rpartition("gradients_")[2] for call in whole.program.calls if call.target == "torch.autograd.grad"
    }
    assert differentiated == {"bfloat16_backward", "complex64_backward"}
    one = [
        tensor for name, tensor in whole.inputs.items() if name.endswith("float16_scalar") and "bfloat16" not in name
    ]
    assert one and all(tensor.shape == () for tensor in one)


def test_gradients_are_asked_of_other_arguments_than_the_samples() -> None:
    whole = asked(find_case("opinfo:nn.functional.avg_pool2d:float32:0"), "gradients")
    assert any("drawn" in call.result for call in whole.program.calls if call.target == "torch.autograd.grad")


def test_integers_are_asked_of_any_size_once() -> None:
    """A turn of another dtype may come to the sample's own."""
    for op in ("__and__", "__xor__", "__rshift__"):
        made = apply(find_case(f"functions:{op}:int64:0"), "dynamic")
        assert isinstance(made, Case), made
