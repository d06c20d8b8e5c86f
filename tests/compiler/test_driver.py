"""Programs through every stage to a kernel, compared with eager: static, dynamic, and refused with the user's line."""

import itertools

import pytest
import torch
from torch.export import Dim
from torch.nn import functional as F

import torchstone
from torchstone.compiler.diagnostics import GuardError, TorchstoneError, Unsupported
from torchstone.compiler.ir import parse_graph
from torchstone.compiler.ops.verifier import verify_graph

A, B = Dim("a"), Dim("b")
DYNAMIC = {
    "softmax": (lambda x: torch.softmax(x, -1), [(5, 7)], ({0: A, 1: B},)),
    "matmul": (lambda x, y: x @ y + 1, [(5, 7), (7, 3)], ({0: A, 1: B}, {0: B})),
    "view": (lambda x: x.view(-1).reshape(x.shape[0], -1).t().contiguous(), [(5, 6)], ({0: A, 1: B},)),
    "cat and slice": (lambda x, y: torch.cat([x, y], 0)[1:], [(5, 6), (4, 6)], ({0: A}, {0: B})),
    "layer norm": (lambda x: F.layer_norm(x, (6,)), [(5, 6)], ({0: A},)),
    "var and mean": (lambda x: x.var(0) + x.mean(), [(5, 6)], ({0: A},)),
    "pad": (lambda x: F.pad(x, (1, 2)), [(5, 6)], ({1: A},)),
    "arange": (lambda x: x + torch.arange(x.shape[0], dtype=torch.float32), [(5,)], ({0: A},)),
    "loss": (F.mse_loss, [(6,), (6,)], ({0: A}, {0: A})),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q), [(2, 3, 6, 4)], ({2: A},)),
    "broadcast": (lambda x, y: x + y, [(5, 1), (7,)], ({0: A}, {0: B})),
}


@pytest.mark.few(11)
@pytest.mark.parametrize(("target", "name"), [*itertools.product(("evaluator", "linalg"), DYNAMIC)])
def test_one_compile_serves_many_shapes(target: str, name: str) -> None:
    fn, shapes, dynamic = DYNAMIC[name]
    exe = torchstone.compile(fn, tuple(torch.randn(s) for s in shapes), target, dynamic)
    for base in (2, 3, 11, 6):
        sizes: dict[str, int] = {}
        args = []
        for shape, axes in zip(shapes, dynamic, strict=True):
            shape = list(shape)
            for axis, dim in axes.items():
                shape[axis] = sizes.setdefault(dim.__name__, base + 2 * len(sizes))
            args.append(torch.randn(shape))
        torch.testing.assert_close(exe(*args), fn(*args))


def test_sizes_that_must_agree_are_guarded() -> None:
    exe = torchstone.compile(F.mse_loss, (torch.ones(6), torch.ones(6)), "linalg", ({0: A}, {0: A}))
    with pytest.raises(GuardError, match=r"s0 is 4 in an earlier argument"):
        exe(torch.ones(4), torch.ones(5))


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_integer_division_by_zero_raises_what_eager_raises(target: str) -> None:
    exe = torchstone.compile(lambda a, b: a // b, (torch.tensor([7, -7]), torch.tensor([2, 2])), target)
    assert exe(torch.tensor([7, -7]), torch.tensor([2, 2])).tolist() == [3, -4]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        exe(torch.tensor([7, -7]), torch.tensor([2, 0]))
    assert exe(torch.tensor([9, 9]), torch.tensor([4, -4])).tolist() == [2, -3]


def test_a_check_stands_beside_a_table_of_floats() -> None:
    def program(a, b):
        return (a // b) * torch.linspace(-1, 1, 24)

    args = (torch.arange(24), torch.full((24,), 5))
    torch.testing.assert_close(torchstone.compile(program, args)(*args), program(*args))


def test_every_stage_is_kept_as_text_that_parses() -> None:
    exe = torchstone.compile(lambda x: torch.softmax(x, 0), (torch.randn(4),))
    assert list(exe.ir)[:4] == ["aten", "contract", "flat", "linalg"]
    for stage in ("aten", "contract", "flat"):
        graph = parse_graph(exe.ir[stage])
        verify_graph(graph)
        assert str(graph) == exe.ir[stage]
    assert "linalg.generic" in exe.ir["linalg"]
    assert "llvm.func" in exe.ir["llvm"]


def test_a_refusal_names_the_op_the_line_and_the_way_there() -> None:
    def program(x):
        return torch.linalg.inv(x + 1)

    with pytest.raises(Unsupported) as caught:
        torchstone.compile(program, (torch.eye(3),), library_calls=False)
    error = caught.value
    assert error.op == "aten.linalg_inv_ex.default"
    assert error.stage == "contract"
    assert "return torch.linalg.inv(x + 1)" in str(error)


def test_an_unknown_target_gets_a_suggestion() -> None:
    with pytest.raises(TorchstoneError, match='no target "linlag" \\(did you mean "linalg"\\?\\)'):
        torchstone.compile(torch.exp, (torch.ones(2),), "linlag")


@pytest.mark.parametrize("target", ["linalg", "tosa", "tensorrt"])
def test_one_contract_three_targets(target: str) -> None:
    def mlp(x, w, b):
        return torch.softmax(torch.tanh(x @ w + b).reshape(2, -1).t(), 0).sum(1, keepdim=True)

    args = (torch.randn(4, 6), torch.randn(6, 8), torch.randn(8))
    exe = torchstone.compile(mlp, args, target)
    assert target in exe.ir
    torch.testing.assert_close(exe(*args), mlp(*args))
