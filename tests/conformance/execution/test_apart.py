"""Questions asked apart: the answers are those of this process, and what ends the other one has none."""

from __future__ import annotations

import os

import pytest
import torch

from torchstone.conformance.custom import registration
from torchstone.conformance.execution import apart
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.variants.apply import apply
from torchstone.fuzz.generator.in_a_variant import in_a_variant
from torchstone.reducers.edit import has_special_values


def case(target: str) -> Case:
    program = Program(("x",), (Call(target, (Ref("x"),), {}, "v"),), Ref("v"))
    return Case(program, {"x": torch.arange(6.0).reshape(2, 3)}, "fuzz", "op", "float32", "seed-1")


@pytest.mark.parametrize("variant", ["strided", "empty", "backward"])
def test_it_is_the_one_that_is_made_here(variant):
    made = in_a_variant(case("torch.sin"), variant)
    assert made is not None and made.to_bytes() == apply(case("torch.sin"), variant).to_bytes()


def test_what_does_not_apply_is_none():
    assert in_a_variant(case("torch.sin"), "no such variant") is None
    assert in_a_variant(case("torch.linalg.inv"), "strided") is None, "eager refuses it"


def test_what_ends_the_process_is_none_and_the_next_one_is_asked(monkeypatch):
    monkeypatch.setattr(registration, "_OPS", dict(registration._OPS))
    library = torch.library.Library("tests_apart", "DEF")
    library.define("fatal(Tensor x) -> Tensor")
    library.impl("fatal", lambda x: x.clone() if x.numel() else os._exit(3), "CPU")
    registration.register("tests_apart::fatal")
    asked = case("torch.ops.tests_apart.fatal.default")
    assert in_a_variant(asked, "strided") is not None
    before = apart._HELPER._child
    assert in_a_variant(asked, "strided") is not None and apart._HELPER._child == before
    assert in_a_variant(asked, "empty") is None
    assert in_a_variant(asked, "strided") is not None and apart._HELPER._child != before
    assert has_special_values(asked) is False
    assert has_special_values(asked.replace(inputs={"x": torch.ones(0)})) is None
    assert has_special_values(asked.replace(inputs={"x": torch.tensor([torch.inf])})) is True
    library._destroy()


def _endless(_: Case, word: str) -> str:
    while word == "endless":
        pass
    return word


def test_a_question_has_as_much_time_as_who_asks_says() -> None:
    assert apart.ask_apart(_endless, case("torch.sin"), "endless", 0) is None
    assert apart.ask_apart(_endless, case("torch.sin"), "short", 0) == "short"
