"""What adapters of torch.export share: outputs, numbers and writes come back as the program has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.conformance.backends.export_support import Exported, capture
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported


def run(exported: Exported, args: tuple[torch.Tensor, ...]) -> Any:
    """Call the exported program as a compiler would: on copies, with a tensor for each output that is computed."""
    with torch.no_grad():
        out = exported.program.module()(*(arg.clone() for arg in args))
    leaves = torch.utils._pytree.tree_leaves(out)
    computed = [torch.as_tensor(leaf) for leaf, want in zip(leaves, exported.outputs, strict=True) if want is not None]
    return exported.finish(args, computed)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "nested": lambda x, y: {"sum": x + y, "both": (x, [y * 2, None])},
    "written": lambda x, y: x.add_(y),
    "written and more": lambda x, y: (x.mul_(2) + y.neg_(), y),
    "number": lambda x, y: (x.sum().item(), y),
    "statistics": lambda x, y: torch.nn.functional.batch_norm(x, y, y + 1, training=True),
    "hidden": lambda x, y: torch.nn.functional.instance_norm(x[None], y, y.exp(), use_input_stats=True),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("core", [False, True])
def test_results_and_writes_are_those_of_eager(name: str, core: bool) -> None:
    fn = PROGRAMS[name]
    args, mine = ((torch.arange(12.0).reshape(3, 4), torch.ones(4)) for _ in range(2))
    if name == "hidden":
        args, mine = ((torch.arange(12.0).reshape(3, 4), torch.ones(3)) for _ in range(2))
    args, mine = tuple(args), tuple(mine)
    exported = capture(fn, mine, torch.export.default_decompositions() if core else None)
    torch.testing.assert_close(run(exported, mine), fn(*args))
    torch.testing.assert_close(mine, args)


def test_an_argument_that_is_written_to_and_returned_is_one_output() -> None:
    args = (torch.arange(3.0), torch.ones(3))
    exported = capture(lambda x, y: (x.add_(y), x * 2), args)
    assert len(exported.outputs) == 2  # the sum and its double; compilers may not know how to give a result twice
    first, second = run(exported, args)
    assert first is args[0]
    torch.testing.assert_close((first, second), (torch.arange(1.0, 4.0), torch.arange(1.0, 4.0) * 2))


@pytest.mark.few(1)
@pytest.mark.parametrize("core", [False, True])
def test_what_goes_by_the_memory_of_a_view_is_declined(core: bool) -> None:
    """A compiler is given dense copies: what lies around a view, and in which order, is not there."""
    base = torch.arange(12.0).reshape(3, 4)
    table: Any = torch.export.default_decompositions() if core else None

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x, (2, 2), (2, 1), 1)

    torch.testing.assert_close(run(capture(fn, (base,), table), (base,)), fn(base))
    for view in (base[1:], base[:2], base.t(), base[:, :2], base[0].expand(3, 4)):
        with pytest.raises(BackendUnsupported, match="as_strided") as caught:
            capture(fn, (view,), table)
        assert caught.value.stage == "capture"
        assert run(capture(torch.sin, (view,), table), (view,)).equal(view.sin())


def test_a_number_may_come_as_one() -> None:
    x = torch.arange(3.0)
    exported = capture(lambda x: (x.sum().item(), x * 2), (x,))
    assert exported.finish((x,), [3.0, x * 2])[0] == exported.finish((x,), [torch.tensor(3.0), x * 2])[0] == 3.0


def test_a_compiler_that_loses_a_result_is_told() -> None:
    args = (torch.ones(2), torch.ones(2))
    exported = capture(lambda x, y: (x + y, x - y), args)
    with pytest.raises(BackendError, match="gives 1 results, the program has 2"):
        exported.finish(args, [torch.ones(2)])


def test_what_cannot_be_exported_is_unsupported() -> None:
    with pytest.raises(BackendUnsupported, match=r"torch\.export"):
        capture(lambda x: x + 1 if x.sum() > 0 else x, (torch.ones(2),))
