"""torch.cond and torch.while_loop: graphs in the IR, branches and loops on the host, against eager both ways."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import torchstone
from torchstone.compiler.diagnostics import GuardError, Unsupported, VerifyError
from torchstone.compiler.ir import parse_graph
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.ops.verifier import verify_graph
from torchstone.compiler.runtime.interpreter import evaluate_graph

TARGETS = ("evaluator", "linalg")
SCALE = torch.tensor([1.0, 2.0, 3.0])


def branch(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: (x.sin() + 1, x.sum()), lambda x: (x.cos() * 2, x.max()), (x,))


def closure(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return torch.cond(x[0] > 0, lambda x: x + y, lambda x: x * SCALE - y, (x,)) + 1


def unchanged(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.clone(), lambda x: -x, (x,))


def nested(x: torch.Tensor) -> torch.Tensor:
    def positive(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.max() > 1, lambda x: x / 2, lambda x: x + 1, (x,))

    return torch.cond(x.sum() > 0, positive, lambda x: x.abs(), (x,))


def library(x: torch.Tensor) -> torch.Tensor:
    m = torch.outer(x, x) + torch.eye(x.shape[0])
    return torch.cond(x.sum() > 0, lambda m: torch.linalg.inv(m).contiguous(), lambda m: m @ m, (m,))


def loop(x: torch.Tensor) -> Any:
    def body(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, x * 1.5 + i

    return torch.while_loop(lambda i, x: (i < 20) & (x.sum() < 50), body, (torch.tensor(0), x))


def branch_in_a_loop(x: torch.Tensor) -> Any:
    def body(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.cond(x.sum() > 10, lambda x: x / 2, lambda x: x + 3, (x,)) + 0.125,)

    return torch.while_loop(lambda x: x.sum() < 14, body, (x,))


def loop_with_closure(x: torch.Tensor) -> Any:
    step = x.abs() + 1
    return torch.while_loop(lambda x: x.sum() < 30, lambda x: (x + step * SCALE,), (x,))[0] * 2


PROGRAMS: tuple[Callable[..., Any], ...] = (
    branch, closure, unchanged, nested, library, loop, branch_in_a_loop, loop_with_closure,
)  # fmt: skip


@pytest.mark.few(8)
@pytest.mark.parametrize(("program", "target"), [*itertools.product(PROGRAMS, TARGETS)])
def test_agrees_with_eager_both_ways(program: Callable[..., Any], target: str) -> None:
    exe = torchstone.compile(program, (torch.tensor([0.5, -0.25, 1.0]),), target)
    for x in (torch.tensor([0.5, 0.25, 1.5]), torch.tensor([-1.0, 0.25, -1.5]), torch.full((3,), 40.0)):
        torch.testing.assert_close(exe(x), program(x))


@pytest.mark.parametrize("target", TARGETS)
def test_one_compile_serves_many_sizes(target: str) -> None:
    n = torch.export.Dim("n", min=2)
    exe = torchstone.compile(branch, (torch.randn(5),), target, ({0: n},))
    for size in (2, 7):
        for sign in (1, -1):
            x = torch.rand(size) * sign
            torch.testing.assert_close(exe(x), branch(x))


@pytest.mark.parametrize("program", [branch, loop, library])
def test_every_stage_parses_back(program: Callable[..., Any]) -> None:
    exe = torchstone.compile(program, (torch.ones(3),), "linalg")
    for stage in ("aten", "contract", "flat"):
        graph = parse_graph(exe.ir[stage])
        verify_graph(graph)
        assert str(graph) == exe.ir[stage]
    assert "aten." not in exe.ir["flat"] or exe.library_calls
    assert exe.library_calls == (
        ("aten.linalg_inv_ex.default", "aten._linalg_check_errors.default") if program is library else ()
    )


def test_only_the_branch_taken_runs() -> None:
    exe = torchstone.compile(library, (torch.ones(3),), "linalg")
    singular = torch.tensor([-1.0, float("nan"), -1.0])
    torch.testing.assert_close(exe(singular), library(singular), equal_nan=True)


def test_random_numbers_in_a_branch_are_eagers() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(3)
        return torch.cond(x.sum() > 0, lambda x: x + torch.rand_like(x), lambda x: -x, (x,)) + noise + torch.rand(3)

    exe = torchstone.compile(program, (torch.ones(3),), "linalg")
    for x in (torch.ones(3), -torch.ones(3)):
        torch.manual_seed(3)
        want = program(x)
        torch.manual_seed(3)
        torch.testing.assert_close(exe(x), want)


def test_a_result_is_no_argument() -> None:
    exe = torchstone.compile(loop_with_closure, (torch.ones(3),), "linalg")
    never = torchstone.compile(
        lambda x: torch.while_loop(lambda x: x.sum() > 99, lambda x: (x + 1,), (x,)), (torch.ones(3),)
    )
    x = torch.ones(3)
    never(x)[0].zero_()
    exe(x).zero_()
    assert torch.equal(x, torch.ones(3))


def test_a_branch_on_a_size_that_values_decide_is_specialized() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y + 1, (x[x > 0],))

    exe = torchstone.compile(program, (torch.ones(3),), "linalg")
    assert exe.specialized
    torch.testing.assert_close(exe(torch.ones(3) * 2), torch.full((3,), 4.0))
    with pytest.raises(GuardError, match="a size was compiled to be 3, and is 2"):
        exe(torch.tensor([1.0, 1.0, -1.0]))


def test_eager_still_works_after_a_capture() -> None:
    x = torch.ones(3)
    torchstone.compile(branch, (x,), "evaluator")
    torch.testing.assert_close(branch(x), (x.sin() + 1, x.sum()))


def test_branches_must_agree() -> None:
    text = """graph @f(%p: bool[], %x: f32[3]) {
      %0: f32[3] = flat.cond(%p, %x) {then=graph @then(%x: f32[3]) { return %x },
        otherwise=graph @otherwise(%x: f32[3]) { %0: f64[3] = flat.cast(%x) {dtype=f64} return %0 }}
      return %0
    }"""
    with pytest.raises(VerifyError, match=r"cond: branches give \(f32\[3\]\) and \(f64\[3\]\)"):
        verify_graph(parse_graph(text))


def test_a_target_without_a_host_refuses() -> None:
    alone = replace(find_target("tosa"), schedules=False)
    with pytest.raises(Unsupported, match=r"flat\.cond"):
        torchstone.compile(branch, (torch.ones(3),), alone)


def test_the_evaluator_runs_every_stage() -> None:
    def program(x: torch.Tensor) -> Any:
        branched = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
        return torch.linalg.inv(x) + x[x > 0].sum(), branched, torch.unique(x)

    exe = torchstone.compile(program, (torch.randn(3, 3),), "linalg")
    for x in (torch.randn(3, 3), torch.eye(3)):
        for stage in ("aten", "contract", "flat"):
            torch.testing.assert_close(evaluate_graph(parse_graph(exe.ir[stage]), [x]), program(x))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches_and_loops_in_a_program_with_writes_and_views(sign: float) -> None:
    """Writes and returned views are functionalized, and PyTorch's rules for control flow are those of its own mode."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        row = x[0]
        row.mul_(2.0)
        (chosen,) = torch.cond(x.sum() > 0, lambda x: (x + 1,), lambda x: (x.sin(),), (x,))
        (turned,) = torch.while_loop(lambda x: x.abs().sum() < 50, lambda x: (x * 2,), (chosen,))
        return turned, x[1:]

    def input_() -> torch.Tensor:
        return sign * torch.arange(1.0, 7.0).reshape(3, 2)

    compiled = torchstone.compile(program, (input_(),))
    for _ in range(2):
        eager, ours = input_(), input_()
        for left, right in zip(program(eager), compiled(ours), strict=True):
            torch.testing.assert_close(right, left)
        torch.testing.assert_close(ours, eager)


def test_a_branch_that_gives_its_operand_is_refused_by_name() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.add_(1.0)
        (out,) = torch.while_loop(lambda x: x.sum() > 100, lambda x: (x,), (x,))
        return out

    with pytest.raises(Unsupported, match=r"torch\.while_loop in a program with writes or views"):
        torchstone.compile(program, (torch.ones(2),))


@pytest.mark.parametrize(
    ("right", "x"),
    [
        (lambda x: (x + 2).contiguous(), torch.ones(2, 3, 4).permute(2, 1, 0)),
        (lambda x: x.sum().broadcast_to(1, 3).double(), torch.ones(1, 3, dtype=torch.float64)),
    ],
    ids=["in another order", "a dim of length 1"],
)
def test_branches_in_a_branch_whose_results_lie_otherwise_in_memory_are_refused_beside_a_write(
    right: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> None:
    """PyTorch's words for it are of many kinds, some those of an assertion."""

    def apart(x: torch.Tensor) -> tuple[torch.Tensor]:
        return torch.cond(x.sum() > 0, lambda x: (x + 1,), lambda x: (right(x),), (x,))

    def program(x: torch.Tensor) -> tuple[torch.Tensor]:
        x.add_(1.0)
        return torch.cond(x.sum() > 1, apart, lambda x: (x.clone(),), (x,))

    with pytest.raises(Unsupported, match=r"torch\.cond in a program with writes or views"):
        torchstone.compile(program, (x,))


def test_batch_norm_in_a_body_beside_a_size_of_values_keeps_the_dtype_of_its_statistics() -> None:
    """Such a program is recorded on fake tensors, and PyTorch's shape function has float32 for bfloat16."""

    def body(x: torch.Tensor, ones: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, mean, _ = torch.native_batch_norm(x, ones, ones, ones, ones, True, 0.0, 1e-5)
        return out + mean + 1, ones.clone()

    def program(x: torch.Tensor, ones: torch.Tensor) -> Any:
        return *torch.while_loop(lambda x, ones: x.sum() < 100, body, (x, ones)), torch.combinations(x[0])

    args = torch.arange(12.0).reshape(4, 3).bfloat16(), torch.ones(3).bfloat16()
    for right, left in zip(program(*args), torchstone.compile(program, args)(*args), strict=True):
        torch.testing.assert_close(left, right)


def test_a_size_that_values_decide_in_a_branch_beside_a_write_is_refused() -> None:
    def program(counts: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return torch.cond(
            x[0, 0] > 0, lambda n, x: torch.tensordot(torch.bincount(n), x, 1), lambda n, x: x.sum(0), (counts, x)
        )

    with pytest.raises(Unsupported, match="a size that depends on values decides"):
        torchstone.compile(program, (torch.tensor([9]), torch.ones(10, 5, dtype=torch.int64)))
