"""Random numbers: eager's own where a backend claims them, the right distribution where it draws with its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.execution.test_run_case import Fake, case_of, outcome, running
from torchstone.conformance.backends.adapters.eager import Eager
from torchstone.conformance.execution.repeatability import observe
from torchstone.conformance.execution.run_case import compile_cases, run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.random.compare import LATER_RUNS, compare
from torchstone.conformance.oracle.random.distribution import FALSE_POSITIVE_RATE, RUNS, Sample, compare_distributions
from torchstone.conformance.oracle.random.work import EACH_CALL, MOST, affordable, work
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref

X = torch.linspace(-2, 2, 400)
HALF, FEW = torch.full((40,), 0.5), torch.ones(8)
OWN = torch.Generator().manual_seed(7)


def own(shape: Any) -> Tensor:
    return torch.rand(shape, generator=OWN)


def sampler(draw: Callable[[], Any]) -> Callable[[int], list[Any]]:
    def run(seed: int) -> list[Any]:
        torch.default_generator.manual_seed(seed)
        return [draw()]

    return run


def dropout(x: Tensor, p: float = 0.5, scale: float = 2.0) -> Tensor:
    return x * (own(x.shape) >= p) * scale


Pair = tuple[Callable[[], Any], Callable[[], Any]]
SAME: dict[str, Pair] = {
    "dropout": (lambda: torch.dropout(X, 0.5, True), lambda: dropout(X)),
    "a rare zero, and another rounding": (
        lambda: torch.dropout(X, 0.01, True), lambda: X * (own(400) >= 0.01) * 1.0101011
    ),
    "normal": (lambda: torch.randn(50), lambda: torch.randn(50, generator=OWN)),
    "normal, half precision": (lambda: torch.randn(50).half(), lambda: torch.randn(50, generator=OWN).half()),
    "complex": (lambda: torch.randn(9, dtype=torch.complex64), lambda: torch.randn(9, 2, generator=OWN) / 2**0.5),
    "heavy tails": (lambda: torch.empty(9).cauchy_(), lambda: torch.tan((own(9) - 0.5) * torch.pi)),
    "one number": (lambda: torch.rand(()), lambda: own(())),
    "a number that is no tensor": (lambda: float(torch.rand(())), lambda: float(own(()))),
    "nothing": (lambda: torch.rand(0), lambda: own(0)),
    "all NaN": (lambda: torch.rand(3) * float("nan"), lambda: torch.full((3,), float("nan"))),
    "without replacement": (lambda: torch.multinomial(FEW, 4), lambda: own(8).argsort()[:4]),
    "integers": (lambda: torch.randint(0, 5, (30,)), lambda: (own(30) * 5).long()),
}  # fmt: skip
OTHER: dict[str, Pair] = {
    "dropout that does not scale": (lambda: torch.dropout(X, 0.5, True), lambda: dropout(X, scale=1.0)),
    "dropout that drops a tenth more": (lambda: torch.dropout(X, 0.5, True), lambda: dropout(X, 0.55, 1 / 0.45)),
    "dropout of whole halves": (
        lambda: torch.dropout(X, 0.5, True), lambda: X * (own(2) >= 0.5).repeat_interleave(200) * 2
    ),
    "the other outcome": (lambda: torch.bernoulli(HALF * 0.6), lambda: (own(40) >= 0.3).float()),
    "a spread a tenth too large": (lambda: torch.randn(200), lambda: torch.randn(200, generator=OWN) * 1.1),
    "a mean off by a tenth": (lambda: torch.randn(200), lambda: torch.randn(200, generator=OWN) + 0.1),
    "uniform for normal": (lambda: torch.randn(20), lambda: (own(20) - 0.5) * 12**0.5),
    "one draw for all": (lambda: torch.randn(5), lambda: torch.randn(1, generator=OWN).expand(5)),
    "the same numbers always": (lambda: torch.rand(5), lambda: torch.full((5,), 0.4)),
    "with replacement": (lambda: torch.multinomial(FEW, 4), lambda: (own(4) * 8).long()),
    "one integer too many": (lambda: torch.randint(0, 5, (30,)), lambda: (own(30) * 6).long()),
    "NaN now and then": (lambda: torch.rand(30), lambda: own(30).where(own(30) > 0.03, torch.nan)),
    "squares": (lambda: torch.rand(()), lambda: own(()) ** 2),
}  # fmt: skip


def pairs(eager: Callable[[], Any], other: Callable[[], Any]) -> tuple[str, dict[str, Any]]:
    OWN.manual_seed(7)
    return compare_distributions(Sample(sampler(eager)), lambda seed: [other()], ["output"])


@pytest.mark.parametrize("name", SAME)
def test_another_generator_of_the_same_distribution_passes(name: str) -> None:
    eager, other = SAME[name]
    if name == "complex":  # the same numbers as pairs
        other = (lambda draw: lambda: torch.view_as_complex(draw()))(other)
    message, evidence = pairs(eager, other)
    assert not message, evidence
    assert (evidence["runs"], evidence["false_alarm"]) == (RUNS, FALSE_POSITIVE_RATE)


@pytest.mark.parametrize("name", OTHER)
def test_another_distribution_is_told(name: str) -> None:
    message, evidence = pairs(*OTHER[name])
    assert message and evidence["probability"] * evidence["statistics"] < FALSE_POSITIVE_RATE


NUMBERS = {
    "with replacement": r"how many different numbers are in output .* where eager's is 4 to 4, 4 on average",
    "half of them zero": r"the share of zeros in .* 0\.[45]\d* on average .* where eager's is 0 to 0, 0 on average",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_what_a_statistic_is_called_is_what_it_counts(name: str) -> None:
    zeros: Pair = (lambda: torch.randn(10), lambda: torch.randn(10, generator=OWN) * (own(10) < 0.5))
    message, evidence = pairs(*OTHER.get(name, zeros))
    assert re.match(NUMBERS[name], message), (message, evidence)


def test_right_generators_are_not_accused() -> None:
    """The probabilities are bounds: of many right backends the least is nowhere near the level."""
    eager = sampler(lambda: torch.bernoulli(HALF))
    for block in range(1, 13):
        assert not compare_distributions(
            Sample(eager), lambda seed, block=block: eager(10**6 * block + seed), ["output"], runs=64
        )[0]


COLUMN = torch.tensor([1e4, -1e4, 1.0]).expand(20, 3).t().contiguous()
CANCELS = Case(
    Program(
        ("x", "y"),
        (
            Call("torch.nn.functional.dropout", (Ref("x"),), {"p": 0.3}, "r0"),
            Call("torch.matmul", (Ref("r0"), Ref("y")), {}, "r1"),
        ),
        Ref("r1"),
    ),
    {"x": torch.linspace(0.9, 1.1, 60).reshape(20, 3), "y": COLUMN},
    "test",
    "dropout",
    "float32",
)


@pytest.mark.few(1)
@pytest.mark.parametrize(("off", "right"), [(0.0, True), (0.02, False)])
def test_terms_of_random_sums_that_cancel_may_be_added_in_another_order(off: float, right: bool) -> None:
    """Off by an ULP of the terms, and not by more."""

    def run(x: Tensor, y: Tensor) -> Tensor:
        return ((dropout(x, 0.3, 1 / 0.7)).double() @ (y + off).double()).float()

    assert (run_case(CANCELS, running(run)).outcome is Outcome.PASS) == right


DROPPED = CANCELS.replace(
    program=Program(
        ("x", "y"),
        (
            Call("torch.matmul", (Ref("x"), Ref("y")), {}, "r0"),
            Call("torch.nn.functional.dropout", (Ref("r0"),), {"p": 0.75}, "r1"),
        ),
        Ref("r1"),
    )
)


@pytest.mark.few(1)
@pytest.mark.parametrize(("off", "right"), [(0.0, True), (0.02, False)])
def test_what_is_mostly_dropped_may_be_rounded_otherwise_too(off: float, right: bool) -> None:
    """Of a number that a run drops, the run tells nothing."""

    def run(x: Tensor, y: Tensor) -> Tensor:
        return dropout((x.double() @ (y + off).double()).float(), 0.75, 4.0)

    assert (run_case(DROPPED, running(run)).outcome is Outcome.PASS) == right


DRAWN = case_of("torch.bernoulli", inputs={"x0": HALF})


def claiming(claim: str, function: Callable[..., Any]) -> Fake:
    backend = running(function)
    backend.__dict__["random_numbers"] = claim
    return backend


def test_eagers_numbers_from_the_same_seed_are_right() -> None:
    verdict = run_case(DRAWN, Eager())
    assert verdict.outcome is Outcome.PASS and "same seed" in verdict.evidence["rule"]


def test_other_numbers_of_the_right_distribution_pass_unless_eagers_were_claimed() -> None:
    def draw(x: Tensor) -> Tensor:
        return (own(40) < x).float()

    verdict = run_case(DRAWN, running(draw))
    assert verdict.outcome is Outcome.PASS and verdict.evidence["rule"] == "distribution", verdict
    assert outcome(run_case(DRAWN, claiming("eager", draw)))[1:] in (
        ("mismatch", "value"),
        ("mismatch", "nondeterministic"),
    )
    assert outcome(run_case(DRAWN, claiming("seeded", draw)))[1:] == ("mismatch", "nondeterministic")
    seeded = claiming("seeded", lambda x: (torch.rand(40) < x).float())
    assert run_case(DRAWN, seeded).outcome is Outcome.PASS


def test_a_claimed_number_may_be_rounded_otherwise_but_not_much() -> None:
    case = case_of("torch.normal", 0.0, 3.0, (50,), inputs={})
    for error, wanted in ((2**-22, "pass"), (2**-12, "mismatch")):
        backend = claiming("eager", lambda error=error: torch.normal(0.0, 3.0, (50,)) * (1 + error))
        assert run_case(case, backend).outcome == wanted


@pytest.mark.torture
def test_what_follows_from_eagers_numbers_is_refereed() -> None:
    """A sum of what dropout leaves, of terms that cancel: in another order it is another number, and not any other."""
    x = torch.linspace(1, 2, 4000) * torch.tensor([1, -1]).repeat(2000)
    calls = (Call("torch.dropout", (Ref("x0"), 0.5, True), {}, "r0"), Call("torch.sum", (Ref("r0"),), {}, "r1"))
    case = Case(Program(("x0",), calls, Ref("r1")), {"x0": x}, "test", "sum", "float32")
    for error, wanted in ((0.0, "pass"), (0.2, "mismatch")):
        backend = claiming("eager", lambda x, error=error: torch.dropout(x, 0.5, True).cumsum(0)[-1] + error)
        verdict = run_case(case, backend)
        assert verdict.outcome == wanted, verdict
        assert error or verdict.evidence["rule"] == "float64"  # beyond the ULPs: nothing else settles it
    redrawn = claiming("eager", lambda x: (torch.rand(1), torch.dropout(x, 0.5, True).sum())[1])
    assert run_case(case, redrawn).outcome is Outcome.MISMATCH


def last_of_equals(x: Tensor) -> Tensor:
    return len(x) - 1 - torch.topk(x.flip(0), 2).indices


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("find", "factor", "told"),
    [
        (last_of_equals, 1.0, ""),
        (lambda x: torch.topk(x, 2, largest=False).indices, 1.0, "output[1]"),
        (last_of_equals, 0.8, "output[0]"),
    ],
)
def test_what_nothing_drawn_reaches_is_judged_as_ever(find: Callable[..., Any], factor: float, told: str) -> None:
    """Which of equal numbers ``topk`` finds is open, whatever else is drawn in the program."""
    calls = (Call("torch.bernoulli", (Ref("x0"),), {}, "r0"), Call("torch.topk", (Ref("x1"), 2), {}, "r1"))
    inputs = {"x0": HALF, "x1": torch.tensor([1.0, 1.0, 0.0, 1.0, -1.0])}
    case = Case(Program(("x0", "x1"), calls, (Ref("r0"), Ref("r1", (1,)))), inputs, "test", "topk", "float32")
    assert not torch.equal(find(inputs["x1"]), torch.topk(inputs["x1"], 2).indices)
    verdict = run_case(case, running(lambda x0, x1: ((own(40) < factor * x0).float(), find(x1))))
    assert (verdict.outcome, verdict.kind) == (("mismatch", "distribution") if told else ("pass", "")), verdict
    assert told in verdict.message


def test_what_half_of_eagers_runs_draw_is_no_exception() -> None:
    """A backend that never drops, and rounds otherwise: half of eager's runs drop nothing either."""
    calls = (Call("torch.dropout", (Ref("x0"), 0.008, True), {}, "r0"), Call("torch.sum", (Ref("r0"),), {}, "r1"))
    x = torch.linspace(1, 2, 80)
    case = Case(Program(("x0",), calls, Ref("r1")), {"x0": x}, "test", "sum", "float32")
    verdict = run_case(case, running(lambda x0: (x0 / 0.992).flip(0).cumsum(0)[-1]))
    assert outcome(verdict)[1:] == ("mismatch", "distribution"), verdict


@pytest.mark.parametrize(("find", "right"), [(last_of_equals, True), (lambda x: x.argsort()[:2], False)])
def test_who_has_eagers_numbers_may_find_another_of_equal_ones(find: Callable[..., Any], right: bool) -> None:
    calls = (Call("torch.bernoulli", (Ref("x0"),), {}, "r0"), Call("torch.topk", (Ref("r0"), 2), {}, "r1"))
    case = Case(Program(("x0",), calls, Ref("r1", (1,))), {"x0": HALF}, "test", "topk", "float32")
    verdict = run_case(case, claiming("eager", lambda x: find(torch.bernoulli(x))))
    assert (verdict.outcome is Outcome.PASS) == right, verdict


def test_what_cannot_be_told_is_untested() -> None:
    calls = (Call("torch.bernoulli", (Ref("x0"),), {}, "r0"), Call("torch.nonzero", (Ref("r0"),), {}, "r1"))
    sizes = Case(Program(("x0",), calls, Ref("r1")), {"x0": HALF}, "test", "nonzero", "float32")

    def draw(x: Tensor) -> Tensor:
        torch.default_generator.manual_seed(20)
        return torch.bernoulli(x).flip(0).nonzero()

    verdict = run_case(sizes, running(draw))
    assert verdict.outcome is Outcome.UNTESTED and "shapes depend" in verdict.message, verdict
    verdict = run_case(sizes, running(lambda x: torch.ones(39, 1).long()))  # where eager draws another number of them
    assert verdict.outcome is Outcome.UNTESTED and "sizes depend on what is drawn" in verdict.message, verdict
    assert run_case(sizes, running(lambda x: torch.ones(39, 1))).kind == "dtype"
    assert run_case(DRAWN, running(lambda x: own(39))).kind == "shape"
    large = case_of("torch.rand", (MOST,), inputs={})
    verdict = run_case(large, running(lambda: own(MOST)))
    assert verdict.outcome is Outcome.UNTESTED and "too large to be run 576 times" in verdict.message


def seeded_case(name: str, x: Tensor = HALF) -> Case:
    calls = (Call("torch.manual_seed", (42,), {}, "r0"), Call(f"torch.{name}", (Ref("x0"),), {}, "r1"))
    return Case(Program(("x0",), calls, Ref("r1")), {"x0": x}, "test", name, "float32")


def test_a_program_that_sets_the_seed_is_asked_without_it() -> None:
    """By distribution, unless the backend claims eager's generator: it is compiled as it is, and has to give those."""
    asked: list[Program] = []

    class Generator:
        name, random_numbers = "generator", ""

        def compile(self, fn: Any, args: Any) -> Any:
            asked.append(fn)
            return fn if self.random_numbers else lambda x: own(x.shape)

    backend = Generator()
    verdict = run_case(seeded_case("rand_like"), backend)
    assert verdict.outcome is Outcome.PASS and verdict.evidence["rule"] == "distribution", verdict
    assert [call.target for call in asked[-1].calls] == ["torch.rand_like"]
    assert [len(fn.calls) for fn in asked] == [1]
    backend.random_numbers = "eager"
    verdict = run_case(seeded_case("rand_like"), backend)
    assert verdict.outcome is Outcome.PASS and "same seed" in verdict.evidence["rule"]
    assert [call.target for call in asked[-1].calls] == ["torch.manual_seed", "torch.rand_like"]


@pytest.mark.parametrize("wrong", [lambda x: torch.full((40,), 0.5), lambda x: own(40) ** 2, lambda x: own(40) + 1])
def test_a_wrong_answer_to_a_program_that_sets_the_seed_is_told(wrong: Callable[..., Any]) -> None:
    assert outcome(run_case(seeded_case("rand_like"), running(wrong)))[1:] == ("mismatch", "distribution")


def test_programs_compiled_together_are_asked_without_their_seeds() -> None:
    seen: list[int] = []

    class Together:
        name = "together"

        def compile_many(self, programs: Any) -> list[Any]:
            found = [fn for fn, _ in programs]
            seen.extend(len(fn.calls) for fn in found)
            return found

    compile_cases([seeded_case("rand_like"), DRAWN], Together())
    assert seen == [1, 1]


def test_how_often_a_program_is_run_depends_on_its_size_alone() -> None:
    small, large = (case_of("torch.rand_like", inputs={"x0": torch.zeros(n)}) for n in (10, 10**6))
    sizes = [work(case.program, case.args) for case in (small, large)]
    assert sizes == [EACH_CALL + 20, EACH_CALL + 2 * 10**6]
    assert [affordable(RUNS, size) for size in (0, MOST, 2 * MOST, 1000 * MOST)] == [RUNS, RUNS, RUNS // 2, 0]


def test_what_eager_refuses_of_other_numbers_is_untested_and_what_the_backend_raises_an_error() -> None:
    calls = (Call("torch.bernoulli", (Ref("x0"),), {}, "r0"), Call("torch.multinomial", (Ref("r0"), 1), {}, "r1"))
    case = Case(Program(("x0",), calls, Ref("r1")), {"x0": torch.full((2,), 0.7)}, "test", "multinomial", "float32")
    verdict = run_case(case, running(lambda x: (own(1) * 2).long()))
    assert verdict.outcome is Outcome.UNTESTED and "eager refuses some" in verdict.message, verdict
    turns = iter(range(1000))

    def stops(x: Tensor) -> Tensor:
        if next(turns) > 100:
            raise RuntimeError("out of numbers")
        return (own(40) < x).float()

    verdict = run_case(DRAWN, running(stops))
    assert verdict.outcome is Outcome.ERROR and "called again: RuntimeError: out of numbers" in verdict.message


@pytest.mark.parametrize("number", [0.0, 1.0])
def test_eagers_numbers_by_chance_prove_nothing(number: float) -> None:
    """A number that every other seed gives is eager's from this seed for every other generator, and for a constant."""
    half, drawn = torch.full((1,), 0.5), Call("torch.bernoulli", (Ref("x0"),), {}, "r1")
    backend = running(lambda x: torch.full((1,), number))
    assert outcome(run_case(seeded_case("bernoulli", half), backend))[1:] == ("mismatch", "distribution")
    free = Case(Program(("x0",), (drawn,), Ref("r1")), {"x0": half}, "test", "bernoulli", "float32")
    assert outcome(run_case(free, backend))[1:] == ("mismatch", "distribution")
    assert run_case(free, running(lambda x: (own(1) < x).float())).outcome is Outcome.PASS


def test_memory_that_nobody_wrote_to_has_an_outline_alone() -> None:
    strided = case_of("torch.empty_strided", (2, 3), (1, 2), inputs={})
    assert run_case(strided, running(lambda: torch.zeros(3, 2).t())).evidence["rule"].startswith("metadata alone")
    assert outcome(run_case(strided, running(lambda: torch.zeros(2, 2))))[1:] == ("mismatch", "shape")
    like = case_of("torch.empty_like", inputs={"x0": X})
    assert outcome(run_case(like, running(torch.zeros_like)))[1] == "pass"
    assert outcome(run_case(like, running(lambda x: torch.zeros(400).int())))[1:] == ("mismatch", "dtype")
    sparse = run_case(like, running(lambda x: torch.zeros(400).to_sparse()))
    assert (sparse.outcome, sparse.kind) == (Outcome.MISMATCH, "structure")
    assert outcome(run_case(like, running(lambda x: torch.zeros_like(x.zero_()))))[1:] == ("mismatch", "mutation")


def test_a_number_that_is_seldom_drawn_is_drawn() -> None:
    """Sixteen seeds give zero; one that a backend draws is no wrong number, and one in each call is."""
    seldom = case_of("torch.bernoulli", inputs={"x0": torch.full((1,), 0.02)})
    calls = iter(range(1000))
    once = run_case(seldom, running(lambda x: torch.ones(1) if not next(calls) else (own(1) < 0.02).float()))
    assert once.outcome is Outcome.PASS and once.evidence["rule"] == "distribution", once
    later = iter(range(1000))  # the first call gives zero, as eager's first ones do, and the second does not
    twice = run_case(seldom, running(lambda x: torch.ones(1) if next(later) == 1 else (own(1) < 0.02).float()))
    assert twice.outcome is Outcome.PASS and twice.evidence["rule"] == "distribution", twice
    always = run_case(seldom, running(lambda x: torch.ones(1)))
    assert (always.outcome, always.kind) == (Outcome.MISMATCH, "distribution")


LOWRANK = case_of(
    "torch.svd_lowrank", inputs={"x0": torch.randn(6, 2, generator=OWN) @ torch.randn(2, 5, generator=OWN)}
)


@pytest.mark.torture
@pytest.mark.parametrize(("scale", "kept"), [(1.0, Outcome.PASS), (1.01, Outcome.MISMATCH)])
def test_factors_of_random_projections_are_compared_by_what_they_determine(scale: float, kept: Outcome) -> None:
    """Signs of vectors turn with the last bit of what is drawn, and more often in one backend than in another."""

    def turned(x: Tensor) -> Any:
        left, values, right = torch.svd_lowrank(x)
        signs = torch.sign(left[:1])
        return left * signs, values * scale, right * signs

    assert run_case(LOWRANK, running(turned)).outcome is kept


PROJECTED = Case(
    Program(
        ("x0",),
        (
            Call("torch.randn", (3, 2), {}, "r0"),
            Call("torch.matmul", (Ref("x0"), Ref("r0")), {}, "r1"),
            Call("torch.linalg.qr", (Ref("r1"),), {}, "r2"),
            Call("torch.matmul", (Ref("r2", (0,)), Ref("r2", (1,))), {}, "r3"),
            Call("torch.linalg.svd", (Ref("x0"),), {"full_matrices": True}, "r4"),
        ),
        (Ref("r3"), Ref("r4", (1,)), Ref("r4", (2,))),
    ),
    {"x0": torch.randn(2, 3, generator=OWN)}, "test", "svd", "float32",
)  # fmt: skip


@pytest.mark.torture
@pytest.mark.parametrize(
    ("name", "of_product", "of_values", "of_vectors", "outcome"),
    [
        ("signs of vectors", 1.0, 1.0, [[1.0], [-1.0], [-1.0]], Outcome.PASS),
        ("the sign of what is drawn", -1.0, 1.0, [[1.0], [1.0], [1.0]], Outcome.PASS),
        ("values", 1.0, 1.01, [[1.0], [1.0], [1.0]], Outcome.MISMATCH),
        ("the size of a vector", 1.0, 1.0, [[1.0], [1.0], [1.01]], Outcome.MISMATCH),
        ("the size of what is drawn", 1.5, 1.0, [[1.0], [1.0], [1.0]], Outcome.MISMATCH),
    ],
)
def test_in_a_program_that_draws_the_signs_of_vectors_are_free(
    name: str, of_product: float, of_values: float, of_vectors: Any, outcome: Outcome
) -> None:
    """Eager's third vector, which no singular value belongs to, has one sign whatever is drawn beside it."""

    def turned(x: Tensor) -> Any:
        _, values, right = torch.linalg.svd(x, full_matrices=True)
        product = x @ torch.randn(3, 2, generator=OWN)
        return product * of_product, values * of_values, right * torch.tensor(of_vectors)

    assert run_case(PROJECTED, running(turned)).outcome is outcome, name


def test_what_signs_of_vectors_decide_is_no_pass() -> None:
    """The sum of the elements of all vectors has another size with other signs: nothing is left to compare."""
    calls = (
        Call("torch.randn_like", (Ref("x0"),), {}, "r0"),
        Call("torch.linalg.svd", (Ref("r0"),), {}, "r1"),
        Call("torch.sum", (Ref("r1", (0,)),), {}, "r2"),
    )
    case = Case(Program(("x0",), calls, Ref("r2")), {"x0": torch.zeros(3, 3)}, "test", "svd", "float32")
    verdict = run_case(case, running(lambda x: own(()) * 100))
    assert verdict.outcome is Outcome.UNTESTED and "signs of vectors" in verdict.message, verdict


class Keeps:
    """A compiled program that draws once for each of two inputs, and then gives what it kept for the second."""

    def __init__(self, keeps: bool) -> None:
        self.keeps, self.kept = keeps, torch.empty(0)

    def __call__(self, p: Tensor) -> Tensor:
        if torch.equal(p, HALF):
            return (own(p.shape) < p).float()
        if not self.keeps or not self.kept.numel():
            self.kept = (own(p.shape) < p).float()
        return self.kept.clone()


@pytest.mark.parametrize("keeps", [False, True])
def test_on_other_inputs_a_compiled_program_is_judged_by_fewer_runs(keeps: bool) -> None:
    call, program = Call("torch.bernoulli", (Ref("p"),), {}, "y"), Keeps(keeps)
    found = []
    for p in (HALF, HALF / 2):
        case = Case(Program(("p",), (call,), Ref("y")), {"p": p}, "test", "bernoulli", "float32")
        expected, actual = observe(case.program, case.fresh_args()), observe(program, case.fresh_args())
        found.append(compare("drawn", case, running(program), program, expected, actual))
    assert [finding.evidence["runs"] for finding in found] == [RUNS, LATER_RUNS]
    assert [str(finding.outcome) for finding in found] == ["pass", "mismatch" if keeps else "pass"]
