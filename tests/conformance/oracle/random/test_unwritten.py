"""Memory that nobody wrote to: what was written beside it is compared, and what lay there before decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.execution.test_run_case import case_of, outcome, running
from tests.sampling import one_in
from torchstone.conformance.backends.adapters.eager import Eager
from torchstone.conformance.execution.poison import FILL, OTHER_FILL, poisoned_memory
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.random.unwritten import FILLS, run_filled, unwritten_elements
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.sources import find_case
from torchstone.conformance.variants.apply import apply

pytestmark = pytest.mark.usefixtures("no_forks")

X = torch.arange(6.0).reshape(2, 3)


def program(*calls: tuple[Any, ...], output: Any = None) -> Case:
    """A case of calls, each the name and its arguments; the result of call n is ``Ref("rn")``."""
    made = tuple(Call(f"torch.{name}", tuple(args), {}, f"r{at}") for at, (name, *args) in enumerate(calls))
    outputs = output or Ref(made[-1].result)
    return Case(Program(("x0",), made, outputs), {"x0": X}, "test", "several", "float32")


GROWN = program(("Tensor.clone", Ref("x0")), ("Tensor.resize_", Ref("r0"), (3, 3)))
FILLED = program(("empty_like", Ref("x0")), ("Tensor.fill_", Ref("r0"), 2.0))
HALVES = program(("empty_like", Ref("x0")), ("cat", [Ref("r0"), Ref("x0")]))
NOTHING = program(("empty_like", Ref("x0")), ("exp", Ref("r0")))
DRAWN = program(("empty_like", Ref("x0")), ("Tensor.uniform_", Ref("r0")))
BOTH = program(("empty_like", Ref("x0")), ("rand_like", Ref("x0")), ("cat", [Ref("r0"), Ref("r1")]))
SIZES = program(("empty_like", Ref("x0")), ("nonzero", Ref("r0")))


def masks(case: Case) -> list[Tensor | None] | None:
    return unwritten_elements([run_filled(case.program, case.fresh_args(), fill) for fill in FILLS])


def test_which_elements_nobody_wrote_to() -> None:
    grown, kept = masks(GROWN) or []
    assert grown is not None and grown.tolist() == [[False] * 3, [False] * 3, [True] * 3]
    assert kept is not None and not kept.any()
    assert [bool(mask.any()) for mask in masks(FILLED) or []] == [False, False]
    halves = (masks(HALVES) or [])[0]
    assert halves is not None and halves.all(1).tolist() == [True, True, False, False] and not halves[2:].any()
    assert masks(SIZES) is None


def grown(x: Tensor) -> Tensor:
    return torch.cat([x, torch.full((1, 3), 7.0)])


WRITTEN: list[tuple[Case, Callable[..., Any], str]] = [
    (GROWN, grown, "pass"),
    (GROWN, lambda x: grown(x) + torch.tensor([[1e-3], [0.0], [0.0]]), "mismatch"),
    (GROWN, lambda x: grown(x).t().contiguous(), "mismatch"),
    (FILLED, lambda x: torch.full_like(x, 2.0), "pass"),
    (FILLED, lambda x: torch.full_like(x, 3.0), "mismatch"),
    (HALVES, lambda x: torch.cat([torch.ones_like(x), x]), "pass"),
    (HALVES, lambda x: torch.cat([x, torch.ones_like(x)]), "mismatch"),
    (DRAWN, lambda x: torch.rand(2, 3, generator=torch.Generator().manual_seed(torch.initial_seed())), "pass"),
    (DRAWN, lambda x: torch.rand(2, 3) ** 2, "mismatch"),
    (NOTHING, torch.exp, "untested"),
    (NOTHING, lambda x: torch.exp(x).double(), "mismatch"),
    (BOTH, lambda x: torch.cat([x, x]), "untested"),
    (SIZES, torch.nonzero, "untested"),
]


@pytest.mark.few(8)
@pytest.mark.parametrize("at", range(len(WRITTEN)))
def test_what_was_written_is_compared(at: int) -> None:
    case, answer, wanted = WRITTEN[at]
    verdict = run_case(case, running(answer))
    assert verdict.outcome == wanted, verdict
    if case is SIZES:
        assert outcome(verdict)[1] == "untested"


def test_eager_passes_what_can_be_asked() -> None:
    for case in (GROWN, FILLED, HALVES, DRAWN):
        verdict = run_case(case, Eager())
        assert verdict.outcome is Outcome.PASS, verdict
    assert run_case(GROWN, Eager()).evidence["unwritten"] == 3
    assert run_case(case_of("torch.empty", (3,), inputs={}), Eager()).evidence["rule"].startswith("metadata alone")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", one_in(3, ["empty_like", "new_empty", "new_empty_strided", "empty_strided"]))
def test_a_variant_does_not_depend_on_what_lay_in_memory(name: str) -> None:
    """Asked lazily, ``empty`` came to another end whenever what lay there was another number."""
    found = []
    for byte in (FILL, OTHER_FILL):
        with poisoned_memory(byte):
            for index in (0, 1):
                case = find_case(f"opinfo:{name}:float32:{index}")
                for variant in ("lazy", "dynamic", "arguments", "constants"):
                    changed = apply(case, variant)
                    found.append((index, variant, getattr(changed, "reason", "") or run_case(changed, Eager()).outcome))
    assert found[: len(found) // 2] == found[len(found) // 2 :]
    assert any(what == "pass" for _, variant, what in found if variant == "lazy") or name == "empty_strided"


@pytest.mark.torture
def test_what_is_in_no_group_is_not_compared() -> None:
    case = find_case("functions:nn.functional.grouped_mm:float32:3")
    written = int(case.args[2][-1])
    assert written == 5 and case.args[0].shape[0] == 6
    mask = (masks(case) or [])[0]
    assert mask is not None and mask[written:].all() and not mask[:written].any()

    def backend(row: int, by: float) -> Outcome:
        def wrong(*given: Tensor) -> Tensor:
            out = case.program(*given).clone()
            out[row] += by
            return out

        return run_case(case, running(wrong)).outcome

    assert backend(5, 1.0) is Outcome.PASS
    assert backend(4, 1.0) is Outcome.MISMATCH
    assert backend(4, 0.0) is Outcome.PASS


def test_a_gradient_of_rows_in_no_group_is_not_compared() -> None:
    case = apply(find_case("functions:nn.functional.grouped_mm:float32:3"), "backward")
    assert isinstance(case, Case)
    kept = masks(case)
    assert kept is not None and any(mask is not None and bool(mask.any()) for mask in kept)
    assert run_case(case, Eager()).outcome in (Outcome.PASS, Outcome.FALLBACK)
