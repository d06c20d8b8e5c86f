"""No failure rests on what the harness patches in PyTorch: it is asked again without, and that verdict counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import exported_program

from torchstone.conformance.backends import composite
from torchstone.conformance.backends.adapters.eager import Eager
from torchstone.conformance.backends.adapters.torch_mlir import TorchMlirLinalg
from torchstone.conformance.backends.export_support import capture
from torchstone.conformance.execution.run_case import PATCHED, run_case
from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.sources import opinfo

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch.export's own tree specs
HELPERS = Path(__file__).parents[1] / "helpers"
LINEAR = torch.ops.aten.linear.default


class Exports(Eager):
    """What torch.export makes of the program, decomposed, run by eager. Wrong by ``off``, where that is not 0."""

    name = "exports"
    off = 0.0
    asked = 0

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        self.asked += 1
        exported = capture(fn, args, {LINEAR: lambda x, w, b=None: torch.mm(x, w.t())})
        module = exported.program.module()
        return lambda *tensors: exported.finish(tensors, [value + self.off for value in module(*tensors)])


def linear() -> Case:
    inputs = {"x": torch.randn(2, 3), "w": torch.randn(4, 3)}
    program = Program(("x", "w"), (Call("torch.nn.functional.linear", (Ref("x"), Ref("w")), {}, "y"),), Ref("y"))
    return Case(program, inputs, "test", "linear", "float32")


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has decomposed nothing yet."""
    for name, value in (("_listed", None), ("_overridden", None), ("_patched_for", set())):
        monkeypatch.setattr(composite, name, value)


@pytest.fixture
def wrong_patch(nothing_kept: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch with a bug: it takes the kernels of another table, in which ``linear`` is something else."""
    real = exported_program._override_composite_implicit_decomp

    @contextmanager
    def override(table: Mapping[Any, Any]) -> Iterator[None]:
        with real({**table, LINEAR: lambda x, w, b=None: torch.mm(x, w.t()) * 2}):
            yield

    monkeypatch.setattr(composite, "_overridden", override)


@pytest.mark.usefixtures("wrong_patch")
def test_what_fails_for_a_wrong_patch_alone_does_not_fail() -> None:
    backend = Exports()
    verdict = run_case(linear(), backend)
    assert verdict.outcome is Outcome.PASS
    assert backend.asked == 2
    assert verdict.evidence[PATCHED]["outcome"] == "mismatch"
    assert "expected" in verdict.evidence[PATCHED]["message"]


@pytest.mark.usefixtures("nothing_kept")
def test_what_torch_export_refuses_for_a_wrong_patch_alone_is_not_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(table: Mapping[Any, Any]) -> Any:
        raise KeyError("a kernel")

    monkeypatch.setattr(composite, "_overridden", broken)
    verdict = run_case(linear(), Exports())
    assert verdict.outcome is Outcome.PASS
    assert verdict.evidence[PATCHED]["outcome"] == "unsupported"
    assert "KeyError" in verdict.evidence[PATCHED]["message"]


@pytest.mark.usefixtures("nothing_kept")
def test_a_failure_is_the_one_without_the_patch() -> None:
    backend = Exports()
    backend.off = 1.0
    verdict = run_case(linear(), backend)
    assert verdict.outcome is Outcome.MISMATCH
    assert backend.asked == 2
    assert PATCHED not in verdict.evidence  # both verdicts are the same


@pytest.mark.usefixtures("nothing_kept")
def test_what_passes_or_was_not_patched_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Exports()
    assert run_case(linear(), backend).outcome is Outcome.PASS
    assert backend.asked == 1
    monkeypatch.setattr(composite, "_patched_for", set())
    monkeypatch.setenv(composite.VARIABLE, "0")
    backend.off = 1.0
    assert run_case(linear(), backend).outcome is Outcome.MISMATCH
    assert backend.asked == 2


@pytest.mark.usefixtures("wrong_patch")
def test_a_worker_that_died_has_its_case_tried_again_without_the_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HELPERS)
    with Pool("patched_backend:DiesPatched", jobs=1, timeout=60) as pool:
        verdict = pool.verdict(linear())
    assert verdict.outcome is Outcome.FLAKY
    assert "then pass alone in a fresh worker" in verdict.message


def outcomes(entries: list[Case]) -> list[tuple[str, ...]]:
    verdicts: list[Verdict] = [run_case(case, TorchMlirLinalg()) for case in entries]
    return [(v.case_id, v.stage, v.outcome, v.kind, v.message) for v in verdicts]


# Composite ops, ops with decompositions, views, writes, a result that is wrong and ops that are unsupported.
OPS = ("flatten", "linalg.vecdot", "nn.functional.layer_norm", "nn.functional.instance_norm", "einsum", "add", "roll",
       "nn.functional.gelu", "index_put", "sort")  # fmt: skip


def equal_verdicts(ops: tuple[str, ...] | list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry for op in ops for entry in opinfo.iterate([op], ["float32"], 1) if isinstance(entry, Case)]
    with monkeypatch.context() as patches:
        patches.setattr(composite, "has_patched", lambda backend: False)  # so that the first verdict stands
        patched = outcomes(entries)
    assert composite.has_patched(TorchMlirLinalg().name)
    monkeypatch.setenv(composite.VARIABLE, "0")
    assert patched == outcomes(entries)


@pytest.mark.torture
@pytest.mark.usefixtures("nothing_kept")
def test_patched_and_unpatched_verdicts_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    equal_verdicts(OPS, monkeypatch)


@pytest.mark.torture
@pytest.mark.parametrize("part", range(8))
@pytest.mark.usefixtures("nothing_kept")
def test_patched_and_unpatched_verdicts_are_equal_on_every_op(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    equal_verdicts(opinfo.select()[part::8], monkeypatch)
