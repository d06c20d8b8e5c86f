"""The generator: what it makes is valid, finite, the same for the same seed, and as varied as it should be."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.oracle.op_traits.undetermined import DRAWS_RANDOM_NUMBERS
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.fuzz.generator import values
from torchstone.fuzz.generator.catalog import all_rules, select_rules
from torchstone.fuzz.generator.choices import ReplayedChoices, SeededChoices
from torchstone.fuzz.generator.draft import Arguments, CallRejected, Draft, DraftValue
from torchstone.fuzz.generator.families import random as random_family
from torchstone.fuzz.generator.generate import DRAWS, SIZES_OF_VALUES, generate, nth_program
from torchstone.fuzz.generator.strategy import programs
from torchstone.reducers.edit import results, tensors_in

COUNT = 150


@pytest.fixture(scope="module")
def stream() -> list[Case]:
    return [nth_program(0, index) for index in range(COUNT)]


def test_the_stream_is_a_function_of_its_seed(stream):
    assert nth_program(0, 17).to_bytes() == stream[17].to_bytes()
    assert nth_program(1, 17).to_bytes() != stream[17].to_bytes()
    assert nth_program(0, 17).id == stream[17].id


def test_programs_are_distinct(stream):
    assert len({case.program.to_json() for case in stream}) > 0.98 * COUNT
    assert len({case.id for case in stream}) == COUNT


def test_programs_have_up_to_the_calls_asked_for(stream):
    assert {len(case.program.calls) for case in stream} == {1, 2, 3, 4, 5}
    assert all(len(nth_program(3, index, max_ops=2).program.calls) <= 2 for index in range(10))


def test_every_call_runs_and_is_finite(stream):
    for case in stream:
        for value in results(case).values():
            for _, tensor in tensors_in(value):
                if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
                    wide = tensor.double() if tensor.dtype in values.STORED else tensor
                    assert bool(wide.isfinite().all()), case.program


def test_a_call_of_a_thousand_results_is_not_kept():
    value = DraftValue(Ref("x0"), torch.ones(4095), exact=True)
    with pytest.raises(CallRejected, match="1365 results"):
        Draft(SeededChoices("0")).call("torch.split", Arguments((value, 3), {}), exact=True, cuts=False)


def test_a_call_of_a_negative_length_is_not_kept():
    value = DraftValue(Ref("x0"), torch.tensor(1.0), exact=True)
    with pytest.raises(CallRejected, match=r"\(-1, 0\)"):
        Draft(SeededChoices("0")).call("torch.Tensor.expand", Arguments((value, (-1, 0)), {}), exact=True, cuts=False)


def test_no_call_is_dead_and_no_input_unused(stream):
    for case in stream:
        used = {ref.name for call in case.program.calls for ref in call.refs()}
        outputs = case.program.outputs if isinstance(case.program.outputs, tuple) else (case.program.outputs,)
        used |= {ref.name for ref in outputs}
        given = {name for name, value in results(case).items() if value is not None}  # an assignment gives nothing
        assert used == given


def test_a_case_survives_the_trip_through_bytes(stream):
    for case in stream[:50]:
        assert Case.from_bytes(case.to_bytes()).to_bytes() == case.to_bytes()


def test_ops_dtypes_ranks_sizes_and_layouts_are_varied(stream):
    tensors = [tensor for case in stream for tensor in case.args]
    assert len({call.target for case in stream for call in case.program.calls}) >= 60
    assert len({tensor.dtype for tensor in tensors}) >= 9
    assert {tensor.dim() for tensor in tensors} >= {0, 1, 2, 3, 4}
    assert {0, 1} <= {size for tensor in tensors for size in tensor.shape}
    assert any(not tensor.is_contiguous() for tensor in tensors)
    assert any(tensor.storage_offset() for tensor in tensors)
    mixed = [case for case in stream if len({tensor.dtype for tensor in case.args}) > 1]
    assert len(mixed) > COUNT // 20


def test_calls_feed_calls(stream):
    chained = [
        case for case in stream if any(ref.name.startswith("v") for call in case.program.calls for ref in call.refs())
    ]
    several = [case for case in stream if len(case.program.calls) > 1]
    assert len(chained) > len(several) / 2


def test_there_are_rules_for_hundreds_of_ops():
    rules = all_rules()
    assert len(rules) >= 500
    assert {"add", "sum", "mm", "softmax", "nn.functional.gelu", "cat", "gather", "linalg.inv"} <= set(rules)


def test_every_program_calls_one_of_the_ops_asked_for():
    for op in ("sub", "cumsum", "nn.functional.conv2d", "div.floor_rounding", "linalg.inv"):
        for index in range(3):
            case = nth_program(0, index, must=select_rules((op,)))
            (rule,) = select_rules((op,))
            assert {rule.target, rule.inplace} & {call.target for call in case.program.calls}


def test_a_name_without_its_variant_names_all_variants():
    variants = {"no_rounding_mode", "floor_rounding", "trunc_rounding", "of_aten_by_number"}
    assert {rule.op for rule in select_rules(("div",))} == {f"div.{variant}" for variant in variants}


def test_an_unknown_op_is_answered_with_a_suggestion():
    with pytest.raises(UnknownName, match=r'unknown op "sofmax".*did you mean "softmax"'):
        select_rules(("sofmax",))


def test_an_op_that_no_program_calls_is_asked_alone() -> None:
    with pytest.raises(InputError, match=r"no rule draws calls of linalg\.qr .* --alone asks it by itself"):
        select_rules(("linalg.qr",))


def test_rounded_values_reach_no_op_that_jumps():
    """A last bit in exp must not become a whole step in floor: no backend could be blamed for that."""
    for index in range(40):
        case = nth_program(5, index, select_rules(("exp", "floor", "neg", "argmax", "eq")))
        blurred: set[str] = set()
        for call in case.program.calls:
            operands = {ref.name for ref in call.refs()}
            if call.target in ("torch.floor", "torch.argmax", "torch.eq"):
                assert not operands & blurred, case.program
            elif call.target == "torch.exp" or operands & blurred:
                blurred.add(call.result)


def test_programs_that_draw_random_numbers_are_a_function_of_the_seed_too():
    """Of the state of the generator they are not, and every op of the family can be drawn."""
    drawn = {op for op, _ in random_family.TABLE}
    for op in drawn:
        must = select_rules((op,))
        torch.default_generator.manual_seed(1)
        cases = (nth_program(2, index, must=must, max_ops=3) for index in range(10))
        case = next(case for case in cases if DRAWS in case.tags)  # dropout draws nothing outside of training
        torch.default_generator.manual_seed(2)
        state = torch.get_rng_state()
        assert nth_program(2, case.index, must=must, max_ops=3).to_bytes() == case.to_bytes()
        assert torch.equal(state, torch.get_rng_state()), "the caller's generator is its own"
        case.program(*case.fresh_args())
        assert not torch.equal(state, torch.get_rng_state()), op
    assert drawn <= DRAWS_RANDOM_NUMBERS.ops.keys() | {"nn.functional.feature_alpha_dropout.with_train"}


def test_the_simplest_choices_make_the_simplest_program():
    case = generate(ReplayedChoices([]), select_rules(("add",)))
    assert len(case.program.calls) == 1
    assert [tensor.dtype for tensor in case.args] == [torch.float32] * len(case.args)


def test_choices_keep_their_bounds():
    choices = SeededChoices("x")
    assert all(-2 <= choices.integer(-2, 3) <= 3 for _ in range(200))
    assert sorted(choices.shuffled(range(5))) == [0, 1, 2, 3, 4]
    assert ReplayedChoices([]).shuffled(range(3)) == [0, 1, 2]
    assert {choices.weighted((("a", 1), ("b", 1))) for _ in range(50)} == {"a", "b"}
    assert not any(SeededChoices("y").chance(0) for _ in range(50))
    assert all(SeededChoices("z").chance(100) for _ in range(50))
    assert list(itertools.islice(iter(lambda: ReplayedChoices([9]).integer(0, 3), None), 1)) == [3]


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(ops=("add", "exp", "sum", "cat", "mm"), max_ops=3))
def test_hypothesis_drives_the_generator(case):
    assert 1 <= len(case.program.calls) <= 3
    case.program(*case.fresh_args())


@pytest.mark.parametrize("op", ["bincount", "masked_select", "combinations", "argwhere"])
def test_ops_whose_sizes_depend_on_values_are_drawn_and_marked(op: str) -> None:
    assert SIZES_OF_VALUES in nth_program(7, 0, must=select_rules([op])).tags


def _drawn(op: str, count: int = 60) -> list[Case]:
    return [nth_program(7, index, max_ops=2, must=select_rules([op])) for index in range(count)]


def test_some_lists_of_tensors_are_long() -> None:
    for op in ("cat", "stack"):
        lengths = [len(call.args[0]) for case in _drawn(op) for call in case.program.calls if call.target.endswith(op)]
        assert 0 < sum(length > 6 for length in lengths) < len(lengths) // 3


def test_numbers_are_moved_and_converted_in_which_eager_hardly_computes() -> None:
    cases = [*_drawn("to"), *_drawn("cat")]
    assert {t.dtype for case in cases for t in case.args} & set(values.STORED)
    converted = {call.args[1] for case in cases for call in case.program.calls if call.target == "torch.Tensor.to"}
    assert converted & set(values.STORED)


@pytest.mark.torture
def test_masks_and_new_dims_stand_beside_places_where_a_program_assigns() -> None:
    (rule,) = select_rules(["__setitem__"])
    found = []
    for seed in range(1000):
        draft = Draft(SeededChoices(f"masks {seed}"))
        if draft.attempt(rule.add_to) and type(index := draft.calls[-1].args[1]) is tuple:
            found.append({draft.inputs[i.name].dtype if isinstance(i, Ref) else type(i) for i in index})
    assert any(kinds >= {torch.bool, torch.int64} for kinds in found)
    assert any(kinds >= {torch.int64, type(None)} for kinds in found)


def test_repeats_are_drawn_that_are_a_number_or_a_tensor() -> None:
    assert nth_program(7, 0, must=select_rules(["repeat_interleave"])).program.calls


def test_programs_of_known_sizes_are_not_marked() -> None:
    for index in range(5):
        case = nth_program(7, index, rules=select_rules(["add", "sum", "cat", "mm"]))
        assert SIZES_OF_VALUES not in case.tags
