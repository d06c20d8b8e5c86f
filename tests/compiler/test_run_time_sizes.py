"""Programs whose sizes and branches depend on values, run on other values than they were compiled for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

import torchstone
from tests.sampling import covering
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.ir import parse_graph
from torchstone.compiler.ops.verifier import verify_graph

TARGETS = ("evaluator", "linalg")
Program = Callable[[torch.Tensor], Any]


def inputs() -> list[torch.Tensor]:
    """Return matrices with many, few, one and no elements above 0."""
    one = torch.zeros(5, 4).index_put_((torch.tensor(2), torch.tensor(1)), torch.tensor(3.0))
    return [*(torch.randn(5, 4) for _ in range(3)), torch.zeros(5, 4), torch.ones(5, 4), torch.eye(5, 4), one, -one]


ANY_SIZE: dict[str, Program] = {
    "nonzero": lambda x: x.nonzero() + 1,
    "argwhere": lambda x: torch.argwhere(x > 0),
    "where": lambda x: torch.where(x > 0)[1],
    "nonzero of a scalar": lambda x: x[0, 0].nonzero(),
    "nonzero_static": lambda x: torch.nonzero_static(x > 0, size=5, fill_value=-7),
    "masked_select": lambda x: x.masked_select(x[:, :1] > 0).sum(),
    "mask": lambda x: x[x > 0] * 2,
    "mask of rows": lambda x: x[x[:, 0] > 0].softmax(1),
    "mask of columns": lambda x: x[:, x[0] > 0],
    "mask and index": lambda x: x[x[:, 0] > 0, torch.tensor([1])],
    "mask written": lambda x: x.clone().index_put_((x > 0,), x[x > 0] * 2),
    "equal masks": lambda x: x[x > 0] + (x * 2)[x > 0],
    "two masks": lambda x: torch.cat([x[x > 0], x[x < 0]]),
    "matmul": lambda x: x[x[:, 0] > 0] @ x.T,
    "outer": lambda x: x[x > 0][:, None] * x[x < 0][None],
    "mean of nothing": lambda x: x[x > 0].mean(),
    "sort": lambda x: x[x > 0].sort().values,
    "slice": lambda x: x.nonzero()[1:],
    "slice up to a count": lambda x: x[: x.nonzero().shape[0] // 4],
    "slice from a count": lambda x: x.view(-1)[(x > 0).nonzero().shape[0] :],
    "unique": lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
    "unique rows": lambda x: torch.unique(x.round(), dim=0),
    "unique_consecutive": lambda x: torch.unique_consecutive(x.round()),
    "unique_consecutive rows": lambda x: torch.unique_consecutive(x.sign(), return_inverse=True, dim=-2),
    "unique_consecutive columns": lambda x: torch.unique_consecutive(x.sign(), return_counts=True, dim=1),
    "bincount": lambda x: torch.bincount((x.abs() * 2).long().view(-1), minlength=2),
    "bincount with weights": lambda x: torch.bincount((x.abs() * 2).long().view(-1), x.view(-1)),
    "chunk": lambda x: torch.chunk(torch.bincount((x.abs() * 2).long().view(-1), minlength=3), 2)[0],
    "repeat_interleave": lambda x: torch.repeat_interleave(x, (x[:, 0].abs() * 2).long(), dim=0),
    "constant": lambda x: x * float(torch.equal(x, x)),
}


@pytest.mark.few(14)
@pytest.mark.parametrize(("name", "target"), covering(ANY_SIZE, TARGETS, strength=1))
def test_any_count_will_do(name: str, target: str) -> None:
    program = ANY_SIZE[name]
    exe = torchstone.compile(program, (torch.randn(5, 4),), target)
    for x in inputs():
        torch.testing.assert_close(exe(x), program(x), equal_nan=True)


@pytest.mark.parametrize(
    "of_nothing",
    [
        torch.sum, torch.mean, torch.prod, torch.any, torch.all, torch.std, torch.var, torch.linalg.vector_norm,
        torch.count_nonzero, lambda x: x @ x, lambda x: x[None] @ x[:, None], lambda x: torch.cat([x, torch.ones(2)]),
        lambda x: torch.addmm(torch.ones(2, 3), x.expand(2, -1), x[:, None].expand(-1, 3)),
        lambda x: x[:, None].expand(-1, 3).mT @ x, torch.median,
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_of_no_elements(of_nothing: Program) -> None:
    """What eager gives for none, or refused."""

    def program(x: torch.Tensor) -> Any:
        return of_nothing(x[x > 0])

    exe = torchstone.compile(program, (torch.randn(6),), "linalg")
    for x in (torch.randn(6), torch.tensor([1.0, -1, -1, 0, 0, 0])):
        torch.testing.assert_close(exe(x), program(x), equal_nan=True)
    try:
        got = exe(-torch.ones(6))
    except GuardError:
        assert of_nothing is torch.median
    else:
        torch.testing.assert_close(got, program(-torch.ones(6)), equal_nan=True)


# What is right for most counts only: for the others GuardError, or the error that eager raises.
SOME_SIZES: dict[str, Program] = {
    "squeeze drops a dim of size 1": lambda x: x[x[:, 0] > 0].squeeze(),
    "max raises for no elements": lambda x: x[x > 0].max(),
    "topk raises for few elements": lambda x: x[x > 0].topk(2).values,
    "the first of none": lambda x: x.nonzero()[0],
    "sizes that must agree": lambda x: x[x > 0] + x[x.flip(0).flip(1) > 0].flip(0),
}


@pytest.mark.parametrize(("name", "target"), [*itertools.product(SOME_SIZES, TARGETS)])
def test_other_counts_are_refused(name: str, target: str) -> None:
    program = SOME_SIZES[name]
    exe = torchstone.compile(program, (torch.randn(5, 4).abs(),), target)
    assert not exe.specialized
    right = 0
    for x in inputs():
        try:
            got = exe(x)
        except GuardError as error:
            assert "test_run_time_sizes.py" in str(error)
            continue
        torch.testing.assert_close(got, program(x))
        right += 1
    assert 3 <= right < len(inputs()) or "agree" in name


# PyTorch's tracing cannot do without the number: the program is specialized, says so, and refuses any other.
SPECIALIZED: dict[str, Program] = {
    "branch on a count": lambda x: x + 1 if x[x > 0].numel() > 3 else x - 1,
    "branch on a value": lambda x: x + 1 if x.sum() > 0 else x - 1,
    "equal": lambda x: x + 1 if torch.equal(x, x.abs()) else x,
    "allclose": lambda x: x + 1 if torch.allclose(x, x.abs()) else x,
    "loop": lambda x: sum(row for row in x[x[:, 0] > 0]),
    "pad": lambda x: F.pad(x[x > 0], (1, 2)),
    "tensor_split": lambda x: torch.tensor_split(x, (x[0] > 0).sum().reshape(1)),
    "unused": lambda x: x + len(x.nonzero()),
}


@pytest.mark.parametrize(("name", "target"), [*itertools.product(SPECIALIZED, TARGETS)])
def test_a_specialized_program_says_so_and_refuses_other_values(name: str, target: str) -> None:
    program = SPECIALIZED[name]
    example = torch.randn(5, 4)
    example[:, 0] = 1
    exe = torchstone.compile(program, (example,), target)
    assert exe.specialized and all("test_run_time_sizes.py" in text for text in exe.specialized)
    torch.testing.assert_close(exe(example), program(example))
    refused = 0
    for x in inputs():
        try:
            got = exe(x)
        except GuardError as error:
            assert "test_run_time_sizes.py" in str(error)
            refused += 1
            continue
        torch.testing.assert_close(got, program(x))
    assert refused


def test_numbers_that_pytorch_reads_and_writes_in_memory_are_seen() -> None:
    """ctc_loss reads the lengths from memory, and writes them to a tensor of its own."""
    scores, labels = torch.randn(10, 2, 5).log_softmax(2), torch.randint(1, 5, (2, 4))
    lengths = (torch.tensor([10, 9]), torch.tensor([4, 3]))
    exe = torchstone.compile(F.ctc_loss, (scores, labels, *lengths), "linalg")
    torch.testing.assert_close(exe(scores, labels, *lengths), F.ctc_loss(scores, labels, *lengths))
    with pytest.raises(GuardError, match="compiled for the value 10, and it is 8"):
        exe(scores, labels, torch.tensor([8, 9]), lengths[1])


def test_packed_sequences_are_refused() -> None:
    rnn = torch.nn.GRU(3, 4)
    program = lambda x, sizes: rnn(PackedSequence(x, sizes))[0].data  # noqa: E731
    with pytest.raises(Unsupported, match="packed sequence"):
        torchstone.compile(program, (torch.randn(5, 3), torch.tensor([3, 2])))


def test_an_argument_is_left_alone_when_a_value_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2 if x.sum() > 0 else x

    exe = torchstone.compile(program, (torch.ones(3),), "linalg")
    x = torch.full((3,), -5.0)
    with pytest.raises(GuardError):
        exe(x)
    assert torch.equal(x, torch.full((3,), -5.0))


def test_what_can_be_compiled_is_no_library_call() -> None:
    exe = torchstone.compile(lambda x: (x.nonzero(), x.masked_select(x > 0), x[x > 0]), (torch.randn(3, 4),), "linalg")
    assert exe.library_calls == ()
    for stage in ("aten", "contract", "flat"):
        graph = parse_graph(exe.ir[stage])
        verify_graph(graph)
        assert str(graph) == exe.ir[stage]
    assert exe.ir["schedule"].count("\nkernel") + exe.ir["schedule"].startswith("kernel") == 2


def test_counts_meet_the_sizes_of_arguments() -> None:
    n = torch.export.Dim("n", min=2)
    program = lambda x: x[x > 0].sum() + x[x[:, 0] > 0].shape[1] + x.nonzero().sum(0)  # noqa: E731
    exe = torchstone.compile(program, (torch.randn(6, 4),), "linalg", ({0: n},))
    for size in (2, 3, 8):
        x = torch.randn(size, 4)
        torch.testing.assert_close(exe(x), program(x))
