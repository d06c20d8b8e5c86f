"""Both frontends give the same graph of ATen ops, with the user's source lines, and refuse what a graph cannot hold."""

import pytest
import torch
from torch import nn
from torch.export import Dim

from torchstone.compiler.capture.export import frontend as export
from torchstone.compiler.capture.trace import frontend as dispatch
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile
from torchstone.compiler.ir import print_graph


def chain(x, y):
    z = torch.exp(x + y)
    return {"a": z, "b": z.sum(-1, keepdim=True) * 2.5}


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen.add_(1)
        return torch.exp(self.linear(x)) + self.seen


PROGRAMS = {
    "chain": (chain, (torch.randn(2, 3), torch.randn(3))),
    "softmax": (lambda x: torch.softmax(x @ x.t(), -1), (torch.randn(2, 3),)),
    "in-place": (lambda x: x.clone().add_(1).mul_(x), (torch.randn(2, 3),)),
    "module": (nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (torch.randn(2, 3),)),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_both_frontends_give_one_graph(name: str) -> None:
    fn, args = PROGRAMS[name]
    one, two = dispatch.capture(fn, args), export.capture(fn, args)
    strip = [op for op in two.graph.ops if op.name != "aten.detach.default"]
    assert [op.name for op in one.graph.ops if op.name != "aten.detach.default"] == [op.name for op in strip]
    if name in ("chain", "softmax"):
        assert str(one.graph) == str(two.graph)
        assert print_graph(one.graph, locations=True).count(__file__) >= len(one.graph.ops)
        assert [op.location.frames[0] for op in one.graph.ops] == [op.location.frames[0] for op in two.graph.ops]


def test_every_argument_of_the_schema_stands_in_the_graph() -> None:
    graph = dispatch.capture(lambda x: x.sum(1), (torch.ones(2, 3),)).graph
    assert str(graph) == (
        "graph @main(%x0: f32[2, 3]) {\n  %0: f32[2] = aten.sum.dim_IntList(%x0, [1], false, none)\n  return %0\n}\n"
    )


def test_symbols_are_named_in_order_of_appearance() -> None:
    n, m = Dim("rows"), Dim("columns")
    graph = export.capture(lambda x, y: x @ y, (torch.randn(5, 3), torch.randn(3, 7)), ({0: n}, {1: m})).graph
    assert "(%x0: f32[s0, 3], %x1: f32[3, s1])" in str(graph)
    assert "%0: f32[s0, s1] = aten.mm.default(%x0, %x1)" in str(graph)


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda x: torch.from_numpy(x.numpy()) + 1, "numpy"),
        (lambda x: x * torch.zeros(65).tolist()[0], "tolist"),
        (lambda x: x.to_sparse(), "sparse"),
    ],
)
def test_what_a_graph_cannot_hold_is_refused(fn, what: str) -> None:
    with pytest.raises(Unsupported, match=what) as caught:
        dispatch.capture(fn, (torch.ones(2),))
    assert caught.value.stage == "capture"


def test_capture_leaves_the_arguments_alone() -> None:
    x = torch.zeros(3)
    captured = dispatch.capture(lambda x: x.add_(1), (x,))
    assert torch.equal(x, torch.zeros(3))
    assert captured.mutated == [0]


def test_mutated_arguments_and_buffers_are_written_back() -> None:
    module = Counter()
    exe = compile(module, (torch.ones(2, 3),), target="evaluator")
    assert torch.equal(module.seen, torch.zeros(3))
    x = torch.randn(2, 3)
    expected = torch.exp(module.linear(x)) + 1
    torch.testing.assert_close(exe(x), expected.detach())
    assert torch.equal(module.seen, torch.ones(3))


def test_parameters_are_read_at_each_call() -> None:
    weight = torch.ones(2)
    exe = compile(lambda x: x + weight, (torch.zeros(2),), target="evaluator")
    weight.fill_(5)
    assert torch.equal(exe(torch.zeros(2)), torch.full((2,), 5.0))


def test_containers_and_plain_values_come_back_as_they_were() -> None:
    exe = compile(
        lambda p: {"x": [p["a"] + 1, None, 3], "n": p["n"]}, ({"a": torch.ones(2), "n": 4},), target="evaluator"
    )
    out = exe({"a": torch.zeros(2), "n": 4})
    assert out["x"][1:] == [None, 3] and out["n"] == 4 and torch.equal(out["x"][0], torch.ones(2))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((torch.ones(2, 4), 2), r"%x0 was compiled as f32\[s0, 3\], got f32\[2, 4\]"),
        ((torch.ones(2, 3, dtype=torch.float64), 2), "got f64"),
        ((torch.ones(2, 3), 3), "argument 1 was 2 when compiled and is part of the program, is 3"),
        ((torch.ones(2, 3), 2.0), "argument 1 was 2 when compiled"),
        ((torch.ones(2, 3),), r"compiled for a call like \(\*, \*\), called like \(\*\)"),
        ((torch.ones(99, 3), 2), r"size n, dim 0 of %x0, must be in \[2, 64\], is 99"),
    ],
)
def test_guards_say_what_does_not_fit(args, message: str) -> None:
    exe = compile(lambda x, n: x + n, (torch.ones(5, 3), 2), "evaluator", ({0: Dim("n", min=2, max=64)}, None))
    with pytest.raises(GuardError, match=message):
        exe(*args)


@pytest.mark.parametrize("dynamic", [None, ({0: Dim("n")},)])
def test_results_that_are_no_tensors_keep_their_class(dynamic) -> None:
    exe = compile(
        lambda x: (torch.broadcast_shapes((2, 1), (1, 3)), x + 1, "text", 2.5), (torch.ones(4),), "evaluator", dynamic
    )
    size, tensor, text, number = exe(torch.zeros(4))
    assert isinstance(size, torch.Size) or dynamic
    assert tuple(size) == (2, 3) and torch.equal(tensor, torch.ones(4)) and (text, number) == ("text", 2.5)
