"""What is learned of an op by trial, and the file that a person may change."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torchstone.conformance.custom import registration, source
from torchstone.conformance.custom.domain import ANY, PROFILES, WIDE, Domain, TensorSpec, draw, filled, specs
from torchstone.conformance.custom.learn import learn
from torchstone.conformance.errors import InputError
from torchstone.conformance.program.case import Case
from torchstone.conformance.repro.script import render_script

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _kept_apart(new_ops, monkeypatch, tmp_path):
    monkeypatch.setattr(source, "FOLDER", tmp_path)
    source.domain_of.cache_clear()
    source.entries.cache_clear()
    yield
    source.domain_of.cache_clear()
    source.entries.cache_clear()


def _shapes(domain: Domain) -> list[list[tuple[int, ...]]]:
    return [[spec.shape for value in call.values() for spec in specs(value)] for call in domain.calls]


def test_words_come_from_what_eager_says():
    domain = learn(registration.ask("newops::reduced"))
    assert {call["how"] for call in domain.calls} == {"sum", "largest"}
    assert {call.get("dim") for call in domain.calls} >= {None, 0, 1, -1}
    assert {len(shape) for (shape,) in _shapes(domain)} == {0, 1, 2, 3, 4, 5}


def test_two_tensors_are_broadcast_and_empty_and_0_d():
    shapes = _shapes(learn(registration.ask("newops::mean_of_two")))
    assert any(x != y and len(x) == len(y) for x, y in shapes)
    assert any(len(x) != len(y) for x, y in shapes)
    assert [(), ()] in shapes and any(0 in x for x, _ in shapes)
    assert shapes[0] == [(3, 4), (3, 4)]


def test_places_are_told_from_numbers():
    domain = learn(registration.ask("newops::rows"))
    assert {call["places"].dtype for call in domain.calls} == {"int64"}
    told = [(call["x"].shape[0], call["places"]) for call in domain.calls if call["x"].shape]
    assert all(rows >= places.below for rows, places in told if places.below > 2 and 0 not in places.shape)
    assert any(call["places"].below > 2 for call in domain.calls)


def test_lists_of_tensors_are_of_several_lengths_and_their_tensors_differ():
    found = [call["xs"] for call in learn(registration.ask("newops::joined")).calls]
    assert {len(xs) for xs in found} >= {1, 2, 3}
    assert any(len({x.shape for x in xs}) > 1 for xs in found)
    assert any(len({x.dtype for x in xs}) > 1 for xs in found)


def test_an_op_that_ends_the_process_is_learned_all_the_same():
    domain = learn(registration.ask("newops::ends_the_process"))
    assert all(0 not in shape for (shape,) in _shapes(domain))


def test_an_op_that_takes_nothing_is_refused_with_eagers_words():
    with pytest.raises(InputError, match="takes nothing at all"):
        learn(registration.ask("newops::takes_nothing"))


def test_an_op_that_no_program_may_call_is_not_called_to_learn_of_it(monkeypatch):
    monkeypatch.setattr(source, "learn", lambda op: pytest.fail("it was called"))
    with pytest.raises(InputError, match="memory at an address"):
        source.prepare(registration.ask("aten::from_file").name)


def test_what_an_op_writes_as_it_is_learned_is_not_left_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert learn(registration.ask("newops::writes_a_file")).calls
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_and_what_a_person_makes_of_it_counts():
    op = registration.ask("newops::soft_cap")
    assert any(isinstance(entry, Case) for entry in source.iterate([op.name], ["float32"]))
    path = source.domain_file(op)
    learned = Domain.from_toml(path.read_text(), "here")
    assert learned == source.domain_of(op) and len(learned.calls) > 20
    lines = [line for line in path.read_text().splitlines() if not line.startswith("    {")]
    path.write_text("\n".join([*lines[:-1], '    { x = "*[2, 9]", cap = 4.0 },', "]"]))
    source.domain_of.cache_clear()
    source.entries.cache_clear()
    (case,) = source.iterate([op.name], ["float32"])
    assert case.inputs["x0"].shape == (2, 9) and case.program.calls[0].args[1] == 4.0


@pytest.mark.parametrize(
    ("text", "words"), [("calls = 3", "no domain"), ('op = "x"\nschema = "y"\ncalls = []', "of another schema")]
)
def test_a_file_that_does_not_fit_is_refused(text, words):
    op = registration.ask("newops::soft_cap")
    source.FOLDER.mkdir(exist_ok=True)
    source.domain_file(op).write_text(text)
    with pytest.raises(InputError, match=words):
        source.domain_of(op)


@pytest.mark.parametrize(
    "value",
    [
        TensorSpec(ANY, (3, 4)), TensorSpec("int64", (), 3), TensorSpec("bool", (0,)),
        TensorSpec(ANY, (2,), None, True), [TensorSpec(ANY, (1,)), TensorSpec(ANY, ())], None, 2, -0.5, float("inf"),
        True, "sum", "none", "dtype x", "*[3]", torch.float64, [1, 2], [], [None],
    ],
    ids=str,
)  # fmt: skip
def test_a_call_reads_back(value):
    domain = Domain("op", "schema", ({"argument": value},))
    assert Domain.from_toml(domain.to_toml(), "here") == domain


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.uint64, torch.complex64, torch.bool])
@pytest.mark.parametrize("profile", PROFILES)
def test_numbers_are_of_the_dtype_and_finite(dtype, profile):
    (tensor,) = filled({"x": TensorSpec(ANY, (200,))}, dtype, profile).values()
    assert tensor.dtype == dtype and bool(tensor.isfinite().all())
    if profile == WIDE and dtype is torch.float32:
        assert tensor.abs().max() > 1000 and tensor.abs().min() < 0.1
    if profile == WIDE and dtype is torch.int8:
        assert {127, -128} <= set(tensor.tolist())
    positive = draw(TensorSpec(ANY, (200,), None, True), dtype, profile)
    assert dtype.is_complex or dtype is torch.bool or bool((positive.to(torch.float64) > 0).all())


def test_the_parameters_of_a_module_are_inputs_and_its_script_runs():
    op = registration.ask("tests.new_ops:layer")
    case = next(entry for entry in source.iterate([op.name], ["float32"]) if isinstance(entry, Case))
    x, weight, bias = case.args
    assert (weight.shape, bias.shape) == ((3, 4), (3,))
    expected = torch.nn.functional.linear(x, weight, bias)
    torch.testing.assert_close(case.program(*case.args), expected)
    script = render_script(case)
    assert "torch.func.functional_call(tests.new_ops.layer, " in script
    told: dict[str, torch.Tensor] = {}
    exec(compile(script, "script", "exec"), told)  # noqa: S102
    torch.testing.assert_close(told["expected"], expected)
