"""Programs asked as one: they do what each does, and a failure is told of the program that it is about."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from torchstone.conformance.backends.protocol import counted
from torchstone.conformance.execution.later_calls import turn_of
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.bundle import bundle
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.runner.retry import CaseResult
from torchstone.conformance.variants.backward import backward
from torchstone.fuzz.bundles import FIRST, PATIENCE, Bundler, BundleSize, Kind, Told, told_apart, trials
from torchstone.fuzz.desk import Desk
from torchstone.fuzz.generator.generate import DRAWS, SIZES_OF_VALUES
from torchstone.reducers.asking import Ask


def _case(index: int, target: str = "torch.neg", tags: tuple[str, ...] = ()) -> Case:
    program = Program(("x0",), (Call(target, (Ref("x0"),), {}, "v0"),), Ref("v0"))
    return Case(program, {"x0": torch.full((2,), float(index))}, "fuzz", target, "float32", "seed-0", index, tags)


class _Pool:
    """Answers at once: a program that calls exp is wrong. ``sizes`` are how many programs each bundle had.

    ``where``: of several programs the verdict tells which one is wrong; ``refused``: they do not compile, and the
    message has a line of the wrong one.
    """

    jobs = 1

    def __init__(self, where: bool = False, refused: Outcome | None = None) -> None:
        self.sizes: list[int] = []
        self.where = where
        self.refused = refused

    def results(self, trials):
        for trial in trials:
            called = [call.target for call in trial.case.program.calls]
            self.sizes.append(len(called))
            wrong = "torch.exp" in called
            labels = (trial.case.id, "b", trial.case.source, trial.case.op, trial.case.dtype, trial.case.variant)
            said, message = {}, ""
            if self.refused and len(called) > 1 and wrong:
                message = f"p{called.index('torch.exp')}_v0 = torch.exp(p{called.index('torch.exp')}_x0)"
            if wrong and self.where:
                said = {"where": f"output[{called.index('torch.exp')}]" if len(called) > 1 else "output"}
            outcome = (self.refused or Outcome.MISMATCH) if wrong else Outcome.PASS
            spent = 1.0 + len(called) / 100
            verdict = Verdict(*labels, Stage.COMPARE, outcome, message=message, evidence=said, seconds=spent)
            yield CaseResult(trial.case, verdict, b"")


def _told(pool: _Pool, cases: list[Case]) -> list[Verdict]:
    """The verdicts of programs that are asked as one."""
    desk, found = Desk(pool), []
    desk.drive(told_apart(cases), lambda told: found.extend(told.verdicts))
    assert all(True for _ in desk.serve(lambda: False))
    return found


def test_a_bundle_computes_what_each_of_its_programs_does():
    cases = [_case(1), _case(2, "torch.exp"), _case(3)]
    one = bundle(cases)
    found = one.program(*one.fresh_args())
    for case, result in zip(cases, found, strict=True):
        torch.testing.assert_close(result, case.program(*case.fresh_args()), rtol=0, atol=0)
    assert bundle(cases[:1]) is cases[0]


@pytest.mark.parametrize(
    ("where", "refused", "asked"),
    [
        (True, None, [16, 15, 1]),
        (False, None, [16, 8, 8, 4, 2, 1, 1, 2, 4]),
        (False, Outcome.ERROR, [16, 15, 1]),
        (False, Outcome.UNSUPPORTED, [16, 15, 1]),
    ],
)
def test_every_program_gets_its_own_verdict_and_only_the_wrong_one_fails(where, refused, asked):
    pool, wrong = _Pool(where, refused), 9
    cases = [_case(index, "torch.exp" if index == wrong else "torch.neg") for index in range(16)]
    verdicts = _told(pool, cases)
    assert [verdict.case_id for verdict in verdicts] == [case.id for case in cases]
    assert [at for at, verdict in enumerate(verdicts) if verdict.outcome is not Outcome.PASS] == [wrong]
    assert pool.sizes == asked


def test_a_bundle_that_kills_its_worker_is_taken_apart_at_once_and_a_program_that_does_is_tried_again():
    taking, cases = told_apart([_case(4), _case(8)]), {}
    trial = next(taking)
    try:
        while True:
            cases[trial.case.op] = trial.once
            labels = (trial.case.id, "b", trial.case.source, trial.case.op, trial.case.dtype, trial.case.variant)
            trial = taking.send(Verdict(*labels, Stage.RUN, Outcome.CRASH))
    except StopIteration:
        assert cases == {"2-programs": True, "torch.neg": False}


def test_the_trials_of_a_reduction_are_asked_as_one_up_to_the_first_that_fails():
    pool, told = _Pool(), []

    def asking():
        cases = tuple(_case(4 * at, "torch.exp" if at in (2, 5) else "torch.neg") for at in range(8))
        told.append((yield Ask(cases, lambda case, verdict: verdict.failed)))
        told.append((yield Ask(cases[:2])))

    desk = Desk(pool)
    desk.drive(trials(asking(), together=True), lambda _: None)
    assert all(True for _ in desk.serve(lambda: False))
    assert [[verdict.failed for verdict in verdicts] for verdicts in told] == [[False, False, True], [False, False]]
    assert pool.sizes == [8, 4, 2, 2, 1, 2]


def test_trials_of_unlike_kinds_are_asked_as_one_with_their_like():
    pool, told = _Pool(), []

    def asking():
        drawn = [_case(4 * at, tags=(DRAWS,)) for at in range(2)]
        cases = (_case(0), _case(4), *drawn, _case(8), _case(12, "torch.exp"))
        told.extend((yield Ask(cases)))

    desk = Desk(pool)
    desk.drive(trials(asking(), together=True), lambda _: None)
    assert all(True for _ in desk.serve(lambda: False))
    assert [verdict.failed for verdict in told] == [False] * 5 + [True]
    assert pool.sizes == [2, 1, 1, 2, 1, 1]


def _bundles(cases: list[Case], size: int) -> list[list[int]]:
    bundler = Bundler()
    bundler.size = lambda kind: type("", (), {"best": lambda _: size})()
    groups = [group for case in cases for group in bundler.add(case)]
    return [[case.index for case in group] for group in (*groups, *bundler.rest())]


def _of_one_turn(count: int) -> list[int]:
    """Numbers of programs of which the same later calls are made."""
    return [4 * number + 2 for number in range(count)]


def test_a_program_that_draws_random_numbers_stays_alone():
    first, *numbers = _of_one_turn(6)
    cases = [_case(first), *(_case(index, tags=(DRAWS,) if at % 2 else ()) for at, index in enumerate(numbers, 1))]
    assert _bundles(cases, 2) == [[6], [2, 10], [14], [22], [18]]


def test_programs_go_with_those_that_are_compiled_and_called_as_they_are():
    """Otherwise one is compiled in another way than alone, or called in ways that another's turn it is."""
    plain = _case(2)
    other_turn = next(case for case in map(_case, range(4)) if turn_of(case) != turn_of(plain))
    gradients = backward(_case(6))
    loop = _case(10)
    body = Program(("a",), (), (Ref("a"),))
    call = Call("torch.cond", (Ref("x0"), body, body, (Ref("x0"),)), {}, "v0")
    loop = loop.replace(program=Program(("x0",), (call,), Ref("v0")), inputs={"x0": torch.tensor(True)})
    dynamic, batch = _case(14).replace(variant="dynamic"), _case(18).replace(variant="batch")
    rewritten = _case(22).replace(variant="rewritten")
    measured = _case(26, tags=(SIZES_OF_VALUES,))
    kinds = [Kind.of(case) for case in (plain, other_turn, gradients, loop, dynamic, batch, rewritten, measured)]
    assert None not in kinds and len(set(kinds)) == len(kinds)
    assert Kind.of(plain) == Kind.of(_case(6, "torch.exp")) == Kind.of(_case(2).replace(variant="default"))
    assert Kind.of(plain.replace(variant="inference")) is None, "a variant that asks one case by itself"


def test_programs_compiled_for_any_size_are_asked_together_whatever_their_sizes():
    numbers = _of_one_turn(5)
    cases = [
        _case(index).replace(variant="dynamic", inputs={"x0": torch.ones(2 + at)}) for at, index in enumerate(numbers)
    ]
    kind = Kind.of(cases[0])
    assert {Kind.of(case) for case in cases} == {kind}
    assert Bundler().size(kind).best() == kind.most > 1


def test_a_program_does_not_wait_for_long():
    cases = [_case(0).replace(variant="dynamic"), *(_case(index, tags=(DRAWS,)) for index in range(1, 2 * PATIENCE))]
    assert [0] in _bundles(cases, 4)[: PATIENCE + 2]


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        (lambda size: 1.0, 32),
        (lambda size: float(size**2), 4),
        (lambda size: 2 + 2.0 * size, 16),
        (lambda size: 99.0, 4),
    ],
)
def test_bundles_are_as_large_as_it_pays_and_as_ends_in_time(seconds, best):
    size = BundleSize()
    for _ in range(40):
        asked = size.best()
        size.learn(asked, seconds(asked), whole=seconds(asked) < 60)
    assert size.best() == best


def test_a_bundle_is_to_end_well_within_the_time_limit():
    sizes = [BundleSize(timeout=timeout) for timeout in (60.0, 30.0)]
    for size in sizes:
        size.learn(16, 16.0, whole=True)
    assert [size.best() for size in sizes] == [32, 16]


def test_how_large_a_bundle_is_is_learned_of_programs_that_are_compiled_alike():
    bundler = Bundler()
    plain, dynamic = (_case(2), _case(6).replace(variant="dynamic"))
    for _ in range(5):
        asked = bundler.size(Kind.of(plain)).best()
        bundler.learn([plain] * asked, Told([], float(asked**2), 3))
    assert bundler.size(Kind.of(plain)).best() == 1
    assert bundler.size(Kind.of(dynamic)).best() == min(Kind.of(dynamic).most, FIRST)


class AnySize:
    """A backend that compiles for any size, and is wrong where ``wrong`` says so of the function's input and its own.

    ``compiled`` are how many calls each program had that was compiled.
    """

    name = "any-size"

    def __init__(self, wrong: Callable[[Program, tuple[torch.Tensor, ...]], set[int]]) -> None:
        self.wrong, self.compiled = wrong, []

    def compile(self, fn, args):
        return self.compile_dynamic(fn, args, ())

    def compile_dynamic(self, fn, args, dims):
        self.compiled.append(len(fn.calls))

        def run(*tensors):
            out = fn(*tensors)
            if isinstance(out, list):
                return [result + 1 if at in self.wrong(fn, tensors) else result for at, result in enumerate(out)]
            return out + 1 if self.wrong(fn, tensors) else out

        return run


def _verdicts(cases: list[Case], backend: AnySize) -> list[Verdict]:
    """What a campaign says of programs that it asks as one."""
    taking, found = told_apart(cases), None
    try:
        trial = next(taking)
        while True:
            trial = taking.send(run_case(trial.case, backend))
    except StopIteration as end:
        found = end.value.verdicts
    return found


def _exp_at(size: int) -> Callable[[Program, tuple[torch.Tensor, ...]], set[int]]:
    return lambda fn, tensors: {
        at
        for at, (call, tensor) in enumerate(zip(fn.calls, tensors, strict=True))
        if call.target == "torch.exp" and tensor.shape[0] == size
    }


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("variant", "size"),
    [
        pytest.param(*row, marks=() if row in (("dynamic", 3), ("batch", 7)) else pytest.mark.torture)
        for row in itertools.product(("dynamic", "batch"), (3, 7, 1, 2, 4))
    ],
)
def test_in_a_bundle_of_any_size_the_one_that_is_wrong_at_one_size_is_found(variant, size):
    """At its own size, 3, at each of the others that it is called with, and at 1."""
    names = ["torch.neg", "torch.exp", "torch.abs", "torch.sin"]
    cases = [
        _case(index, name).replace(variant=variant, inputs={"x0": torch.linspace(0.5, 1, 3 + at - 1)})
        for at, (index, name) in enumerate(zip(_of_one_turn(4), names, strict=True))
    ]
    backend = AnySize(_exp_at(size))
    verdicts = _verdicts(cases, backend)
    assert [verdict.case_id for verdict in verdicts] == [case.id for case in cases]
    assert [verdict.outcome for verdict in verdicts] == ["pass", "mismatch", "pass", "pass"]
    assert backend.compiled[0] == 4


@pytest.mark.torture
def test_a_bundle_of_any_size_that_is_right_is_compiled_once():
    cases = [_case(index).replace(variant="dynamic") for index in _of_one_turn(3)]
    backend = AnySize(lambda fn, tensors: set())
    assert [verdict.outcome for verdict in _verdicts(cases, backend)] == ["pass"] * 3
    assert backend.compiled == [3]


@pytest.mark.torture
def test_a_bundle_that_takes_sizes_which_one_of_it_has_to_refuse_is_taken_apart():
    """The second adds inputs that no longer fit; a backend that pads them accepts what eager refuses."""

    class Padding(AnySize):
        def compile_dynamic(self, fn, args, dims):
            run = super().compile_dynamic(fn, args, dims)

            def padded(*tensors):
                try:
                    return run(*tensors)
                except RuntimeError:
                    return run(*args) if any(call.target == "torch.add" for call in fn.calls) else run(*tensors)

            return padded

    add = Program(("x0", "x1"), (Call("torch.add", (Ref("x0"), Ref("x1")), {}, "v0"),), Ref("v0"))
    fits = _case(6).replace(program=add, inputs={"x0": torch.ones(3), "x1": torch.ones(3)}, op="add", variant="dynamic")
    cases = [_case(2).replace(variant="dynamic"), fits, _case(10).replace(variant="dynamic")]
    verdicts = _verdicts(cases, Padding(lambda fn, tensors: set()))
    assert [verdict.outcome for verdict in verdicts] == ["pass", "mismatch", "pass"]
    assert verdicts[1].kind == "accepted"


def test_in_a_bundle_of_rewritten_programs_the_one_that_contradicts_itself_is_found():
    """It is right as it is, and wrong where its operand is a copy: each is asked in the rewrites that it has alone."""

    def wrong(fn: Program, tensors: tuple[torch.Tensor, ...]) -> set[int]:
        copied = {ref.name for call in fn.calls if "exp" not in call.target for ref in [Ref(call.result)]}
        outputs = fn.outputs if isinstance(fn.outputs, list) else [fn.outputs]
        blamed = {call.result for call in fn.calls if call.target == "torch.exp" and call.refs()[0].name in copied}
        return {at for at, ref in enumerate(outputs) if isinstance(ref, Ref) and ref.name in blamed}

    cases = [
        _case(index, name).replace(variant="rewritten")
        for index, name in zip(_of_one_turn(3), ["torch.neg", "torch.exp", "torch.abs"], strict=True)
    ]
    backend = AnySize(wrong)
    alone = [run_case(case, AnySize(wrong)).outcome for case in cases]
    assert [verdict.outcome for verdict in _verdicts(cases, backend)] == alone == ["pass", "mismatch", "pass"]
    assert backend.compiled[0] == 3 and backend.compiled[1] > 3


class PartlyEager:
    """A backend that runs ops of these names by PyTorch's kernels, and tells of it; ``more`` are others that it tells.

    ``asked`` are the ops of each program that it compiled.
    """

    name, executors = "partly-eager", ("own",)

    def __init__(self, left: set[str], more: tuple[str, ...] = ()) -> None:
        self.left, self.more, self.asked = left, more, []

    def compile(self, fn, args):
        names = [call.operator for call in fn.calls]
        self.asked.append(names)

        def run(*tensors):
            return fn(*tensors)

        eager = [f"aten::{name}" for name in names if name in self.left]
        eager += [kernel for kernel in self.more if eager]
        run.evidence = {"ran": {"own": ["kernel"], **({"eager": counted(eager)} if eager else {})}}
        return run


def _outcomes(verdicts: list[Verdict]) -> list[str]:
    return [str(verdict.outcome) for verdict in verdicts]


NAMES = ("torch.neg", "torch.exp", "torch.abs", "torch.exp", "torch.sin")


def _named(names: tuple[str, ...] = NAMES) -> list[Case]:
    return [_case(index, name) for index, name in zip(_of_one_turn(len(names)), names, strict=True)]


@pytest.fixture
def _executors_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend is made of eager, which is no matter here."""
    monkeypatch.setattr(PartlyEager, "uses_eager_kernels", True, raising=False)


@pytest.mark.usefixtures("_executors_are_believed")
def test_a_fallback_is_that_of_the_programs_which_call_for_what_ran():
    backend = PartlyEager({"exp"})
    verdicts = _verdicts(_named(), backend)
    assert _outcomes(verdicts) == ["pass", "fallback", "pass", "fallback", "pass"]
    assert {verdict.message for verdict in verdicts} == {"", "eager ran aten::exp"}
    assert len(backend.asked) == 1
    alone = [run_case(case, PartlyEager({"exp"})) for case in _named()]
    assert [(v.case_id, v.outcome, v.message) for v in verdicts] == [(v.case_id, v.outcome, v.message) for v in alone]


def test_smaller_bundles_are_tried_as_long_as_none_was_right_as_it_stood_and_then_larger_ones():
    size = BundleSize()
    for whole, asked in ((False, 4), (True, 2), (True, 2)):
        assert size.best() == asked
        size.learn(asked, 1.0 if whole else 8.0, whole=whole)
    size.learn(4, 1.0, whole=True)
    assert size.best() == 32


@pytest.mark.usefixtures("_executors_are_believed")
def test_a_kernel_that_a_decomposition_comes_to_is_that_of_the_program_which_is_decomposed():
    lcm = Program(("x0",), (Call("torch.lcm", (Ref("x0"), Ref("x0")), {}, "v0"),), Ref("v0"))
    integers = _case(22, "torch.lcm").replace(program=lcm, inputs={"x0": torch.tensor([4, 6])})

    class Decomposing(PartlyEager):
        def compile(self, fn, args):
            run = super().compile(fn, args)
            run.evidence["ran"] |= {"eager": ["aten::gcd"]} if "lcm" in self.asked[-1] else {}
            return run

    backend = Decomposing(set())
    assert _outcomes(_verdicts([*_named(NAMES[:3]), integers], backend)) == ["pass", "pass", "pass", "fallback"]
    assert len(backend.asked) == 1


@pytest.mark.usefixtures("_executors_are_believed")
def test_where_it_is_not_known_for_which_program_a_kernel_ran_the_others_are_asked_again():
    """Something ran that no program calls for, as what a decomposition comes to."""
    backend = PartlyEager({"exp"}, more=("aten::unheard_of",))
    assert _outcomes(_verdicts(_named(), backend)) == ["pass", "fallback", "pass", "fallback", "pass"]
    assert backend.asked == [["neg", "exp", "abs", "exp", "sin"], ["neg", "abs", "sin"]]


@pytest.mark.usefixtures("_executors_are_believed")
def test_a_kernel_that_ran_for_some_of_those_that_call_for_it_marks_none_for_sure():
    """Of two programs that call for it one is left to eager: which one, only each by itself tells."""

    class OneOfTwo(PartlyEager):
        def compile(self, fn, args):
            run = super().compile(fn, args)
            left = any(float(tensor[0]) == 6 for tensor in args)
            run.evidence["ran"] |= {"eager": ["aten::exp"] if left else []}
            return run

    backend = OneOfTwo({"exp"})
    assert _outcomes(_verdicts(_named(), backend)) == ["pass", "fallback", "pass", "pass", "pass"]


@pytest.mark.usefixtures("_executors_are_believed")
def test_an_executor_of_another_name_marks_those_alone_that_it_ran_for():
    class Host(PartlyEager):
        def compile(self, fn, args):
            run = super().compile(fn, args)
            run.evidence["ran"] = {"own": ["kernel"], "host": run.evidence["ran"].get("eager", [])}
            return run

    assert _outcomes(_verdicts(_named(), Host({"exp"}))) == ["pass", "fallback", "pass", "fallback", "pass"]
