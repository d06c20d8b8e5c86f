"""Guidance: what no program had comes first, news of the backend count for a while, and without it nothing changes."""

from __future__ import annotations

import pytest
import torch

from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.fuzz.generator.catalog import select_rules
from torchstone.fuzz.generator.generate import nth_program
from torchstone.fuzz.generator.novelty import DRY, HOT_PROGRAMS, PATIENCE, UNSUPPORTED, Novelty
from torchstone.fuzz.guidance import Guidance
from torchstone.fuzz.vocabulary import Vocabulary

COUNT = 60


def _stream(novelty: Novelty | None, count: int = COUNT) -> list[Case]:
    return [nth_program(8, index, novelty=novelty) for index in range(count)]


@pytest.fixture(scope="module")
def guided() -> list[Case]:
    return _stream(Guidance())


@pytest.mark.torture
def test_it_reaches_more_with_as_many_programs() -> None:
    plain, other = Vocabulary(), Vocabulary()
    for case in _stream(None, 150):
        plain.add(case)
    for case in _stream(Guidance(), 150):
        other.add(case)
    assert len(other.ops) > len(plain.ops)


def test_the_same_programs_and_verdicts_give_the_same_program(guided: list[Case]) -> None:
    assert [case.to_bytes() for case in _stream(Guidance(), 20)] == [case.to_bytes() for case in guided[:20]]
    assert nth_program(8, 19).to_bytes() != guided[19].to_bytes(), "it depends on those before it"


def _verdict(message: str, outcome: Outcome = Outcome.UNSUPPORTED) -> Verdict:
    return Verdict("id", "backend", "fuzz", "sin", "float32", "seed", Stage.CAPTURE, outcome, "", message)


SIN = Case(
    Program(("x",), (Call("torch.sin", (Ref("x"),), {}, "v"),), Ref("v")),
    {"x": torch.ones(2, dtype=torch.int16)},
    "fuzz",
    "sin",
    "int16",
)


def test_a_message_never_seen_makes_ops_and_dtypes_likelier_for_a_while() -> None:
    guidance = Guidance()
    assert not guidance.learn(SIN, _verdict("no sin of int16")) and not guidance.hot_dtypes(), "a refusal is no news"
    assert guidance.learn(SIN, _verdict("an unlucky int16", Outcome.ERROR))
    assert guidance.is_hot("torch.sin") and guidance.hot_dtypes() == [torch.int16]
    assert not guidance.learn(SIN, _verdict("an unlucky int16", Outcome.ERROR)), "the same again is no news"
    assert not guidance.learn(SIN, _verdict("", Outcome.PASS))
    for _ in range(HOT_PROGRAMS + 1):
        guidance.keep([])
    assert not guidance.is_hot("torch.sin") and not guidance.hot_dtypes()


def test_an_op_that_no_program_had_counts_most_until_it_was_tried_often() -> None:
    novelty = Novelty()
    novelty.keep([("neg", "dtype", torch.float32)])
    known = novelty.score("neg", (), torch.float32)
    assert novelty.score("sin", (), torch.float32) > novelty.score("neg", (), torch.int8) > known == 0
    for _ in range(PATIENCE):
        novelty.try_op("sin")
    assert novelty.score("sin", (), torch.float32) == 0


def test_of_what_was_not_traced_it_is_not_known_that_it_ran_nothing_new() -> None:
    guidance = Guidance()
    guidance.keep([("sin", "dtype", torch.float32)])
    scores = []
    for traced in (False, True):
        for _ in range(DRY):
            guidance.learn(SIN, _verdict("", Outcome.PASS), traced=traced)
        scores.append(guidance.score("sin", ("torch.sin",), torch.float32))
    assert scores[0] > scores[1]


def test_ops_that_were_refused_only_are_drawn_less_often() -> None:
    def share(novelty: Novelty) -> float:
        cases = [nth_program(8, index, rules=select_rules(["sin", "cos"]), novelty=novelty) for index in range(40)]
        targets = [call.target for case in cases for call in case.program.every_call]
        return sum("sin" in target for target in targets) / len(targets)

    guidance = Guidance()
    assert 0.3 < share(guidance) < 0.7
    sines = [target for target in ("torch.sin", "torch.sin_", "torch.Tensor.sin_") for _ in range(UNSUPPORTED)]
    for target in sines:
        case = SIN.replace(program=Program(("x",), (Call(target, (Ref("x"),), {}, "v"),), Ref("v")))
        assert not guidance.is_unsupported(target)
        guidance.learn(case, _verdict("no sines"))
    assert guidance.is_unsupported("torch.sin") and 0 < share(guidance) < 0.3
    guidance.learn(SIN, _verdict("", Outcome.PASS))
    assert not guidance.is_unsupported("torch.sin")
    for _ in range(UNSUPPORTED):
        guidance.learn(SIN, _verdict("no sin of int16"))
    assert not guidance.is_unsupported("torch.sin"), "which some program had"
