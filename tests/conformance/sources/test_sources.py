"""Sources beside the op database: what eager refuses, and whole models."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import source_digests
import torch

from torchstone.conformance.backends import load
from torchstone.conformance.backends.protocol import Availability, BackendUnsupported
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.execution.run_case import REFUSED, run_case
from torchstone.conformance.execution.verdict import Kind, Outcome, Stage
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import SOURCES, find_case, iterate
from torchstone.conformance.sources import load as source
from torchstone.conformance.sources.models.examples import EXAMPLES


class Lenient:
    """Takes everything: zeros of the first input's shape."""

    name = "lenient"

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {}

    def compile(self, fn: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
        return lambda *args: torch.zeros(())


class Declining(Lenient):
    def compile(self, fn: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
        raise BackendUnsupported("not today")


@pytest.fixture
def refused() -> Case:
    return find_case("errors:cat:float32:1")


def test_a_backend_has_to_refuse_what_eager_refuses(refused: Case) -> None:
    assert refused.tags == (REFUSED,)
    for name in ("eager", "linalg"):
        verdict = run_case(refused, load(name))
        assert verdict.outcome is Outcome.PASS and verdict.evidence["eager"] and verdict.evidence["backend"]
    verdict = run_case(refused, Lenient())
    assert (verdict.outcome, verdict.kind, verdict.stage) == (Outcome.MISMATCH, Kind.ACCEPTED, Stage.COMPARE)
    assert "where eager raises ValueError" in verdict.message
    assert run_case(refused, Declining()).outcome is Outcome.UNSUPPORTED


def test_what_eager_takes_after_all_is_untested() -> None:
    case = find_case("opinfo:add:float32:0").replace(tags=(REFUSED,))
    assert run_case(case, load("linalg")).outcome is Outcome.UNTESTED


@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "op"), [("errors", "cat"), ("models", "mlp")])
def test_ids_name_the_same_bytes(name: str, op: str) -> None:
    cases = [entry for entry in iterate({name: [op]}, None, 2) if isinstance(entry, Case)]
    assert len(cases) >= 2 and len({case.id for case in cases}) == len(cases)
    for case in cases:
        assert find_case(case.id).to_bytes() == Case.from_bytes(case.to_bytes()).to_bytes() == case.to_bytes()


@pytest.mark.torture
def test_ids_mean_the_same_bytes_in_every_process() -> None:
    command, env = [sys.executable, source_digests.__file__], os.environ | {"PYTHONHASHSEED": "1"}
    other = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert [line.split()[0] for line in other] == list(SOURCES)
    assert list(source_digests.digests()) == other


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "custom"])  # which has what a user registers
def test_sources_say_what_they_do_not_have(name: str) -> None:
    with pytest.raises((UnknownName, InputError)):
        source(name).case("softmx", "float32", 0)
    op, dtype = next((op, dtype) for op in source(name).op_names() for dtype in source(name).dtypes_of(op))
    with pytest.raises(InputError):
        source(name).case(op, dtype, 10**6)


@pytest.mark.few(5)
@pytest.mark.parametrize("op", EXAMPLES)
def test_models_are_cases(op: str) -> None:
    entries = list(source("models").iterate([op], ["float32"]))
    assert all(isinstance(entry, Case) for entry in entries)
    assert [entry.tags for entry in entries if isinstance(entry, Case)] == [(), ("train",), (), ()]
    assert isinstance(entries[2], Case) and run_case(entries[2], load("eager")).outcome is Outcome.PASS
