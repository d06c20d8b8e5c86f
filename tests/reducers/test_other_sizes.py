"""A failure that only other sizes show, of a program compiled with sizes free, stays one, and its script shows it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cases import case

from torchstone.conformance.backends import load
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Kind, Outcome, Stage, Verdict
from torchstone.conformance.variants.dynamic import DYNAMIC, PART
from torchstone.reducers.failure import reduce_case
from torchstone.reducers.lineage import Lineage
from torchstone.reducers.script_run import run_script

BACKENDS = Path(__file__).parents[1] / "conformance/repro/sized.py"
CALLS = [("v0", "exp", "x0"), ("v1", "add", "v0", "x1"), ("v2", "sin", "x1"), ("v3", "mul", "v1", "v2")]


@pytest.mark.torture
@pytest.mark.parametrize("name, kind, operands", [("NoMoreRows", Kind.VALUE, 1), ("FewestRows", Kind.ACCEPTED, 2)])
def test_it_is_reduced_to_a_script_that_shows_it(
    name: str, kind: Kind, operands: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(BACKENDS, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sized", raising=False)
    backend = load(f"sized:{name}")
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    start = case(CALLS, "v3", x0=x, x1=x + 3).replace(variant=DYNAMIC)
    found = reduce_case(start, f"sized:{name}", judge=lambda candidate: run_case(candidate, backend))
    assert found.confirmed and found.case.variant == DYNAMIC and found.verdict.kind == kind
    assert len(found.case.program.calls) == 1 and [tensor.numel() for tensor in found.case.args] == [2] * operands
    (tmp_path / "script.py").write_text(found.script)
    ran = run_script(tmp_path / "script.py", found.verdict)
    assert ran.code == 1 and ran.shows, ran.tail


def test_the_place_of_a_failure_is_one_in_the_part_that_fails() -> None:
    whole = case([("v0", "exp", "x0"), ("v1", "sin", "x1")], ["v0", "v1"], x0=torch.ones(2), x1=torch.ones(3))
    failed = Verdict(
        "", "", "", "", "", DYNAMIC, Stage.COMPARE, Outcome.MISMATCH, "value", evidence={"where": "output", PART: 1}
    )
    lineage = Lineage.of(whole.replace(variant=DYNAMIC), failed)
    assert lineage.roles == {("torch.sin", ())}
    alone = case([("v0", "exp", "x0")], "v0", x0=torch.ones(2)).replace(variant=DYNAMIC)
    assert not lineage.holds(alone, replace(failed, evidence={"where": "output"}))
