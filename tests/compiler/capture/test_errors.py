"""What a user is told when a program cannot be captured: why, and on which of his lines."""

import pytest
import torch
from torch.export import Dim

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile

N = ({0: Dim("n", min=2, max=64)},)


def escaping(x):
    return torch.from_numpy(x.numpy())  # the line


def sparse(x):
    return x.to_sparse()  # the line


def on_meta(x):
    return (x + 1).to("meta")  # the line


def branching(x):
    y = x * 2
    if y.sum() > 0:  # the line
        y = y + 1
    return y


def quantized(x):
    return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize()  # the line


@pytest.mark.parametrize(
    ("fn", "dynamic"),
    [(escaping, None), (sparse, None), (on_meta, None), (quantized, None), (branching, N), (escaping, N), (sparse, N)],
)
def test_the_line_is_quoted(fn, dynamic) -> None:
    with pytest.raises(Unsupported) as caught:
        compile(fn, (torch.randn(4, 3),), "evaluator", dynamic)
    assert caught.value.stage == "capture"
    assert "# the line" in str(caught.value) and f"in {fn.__name__}" in str(caught.value)


@pytest.mark.parametrize("dynamic", [None, N])
def test_what_the_program_raises_is_its_own_business(dynamic) -> None:
    def program(x):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        compile(program, (torch.randn(4, 3),), "evaluator", dynamic)


def test_sizes_that_cannot_be_dynamic_are_told() -> None:
    with pytest.raises(Unsupported, match=r"Constraints violated \(n\)") as caught:
        compile(lambda x: x.view(2, -1), (torch.randn(4, 3),), "evaluator", N)
    assert "TORCH_LOGS" not in str(caught.value)


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_blends_that_the_tracer_rounds_otherwise_are_refused(mode: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, (3, 3), mode=mode)

    image = torch.arange(64, dtype=torch.uint8).reshape(1, 1, 8, 8)
    for dynamic in (None, ({2: torch.export.Dim.AUTO},)):
        with pytest.raises(Unsupported, match=r"uint8|u8"):
            compile(program, (image,), "evaluator", dynamic)
    with pytest.raises(Exception, match="computes with floats what eager computes with integers"):
        torch.compile(program, backend="torchstone")(image)
    by_name = getattr(torch.ops.aten, f"upsample_{mode}2d").vec
    for asked in (program, lambda x: by_name(input=x, output_size=[3, 3], align_corners=False, scale_factors=None)):
        executable = compile(asked, (image.float(),), "evaluator", dynamic)
        assert executable(image.float()).allclose(program(image.float()))


def test_an_op_of_a_graph_of_torch_compile_is_told_with_its_line() -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match="sparse") as caught:
        torch.compile(sparse, backend="torchstone", fullgraph=True)(torch.randn(3))
    assert "to_sparse()  # the line" in str(caught.value)
    torch._dynamo.reset()


table = torch.arange(6.0)


def shapes_and_loops(x, names, *, table=table):
    rows = [x[i] * k for i, k in enumerate(names.values()) if k]
    if x.shape[0] > 3:
        rows.append(table[: x.shape[1]])
    while len(rows) < 4:
        rows.append(rows[-1] + len(rows))
    return torch.stack(rows), dict.fromkeys(names, x.shape[0])


@pytest.mark.parametrize("dynamic", [None, ({0: Dim("n", min=4, max=64)}, {"a": None, "b": None})])
def test_python_decides_while_the_program_is_captured(dynamic) -> None:
    names = {"a": 2.0, "b": 3}
    exe = compile(shapes_and_loops, (torch.randn(5, 6), names), "evaluator", dynamic)
    for rows in (5,) if dynamic is None else (5, 9):
        x = torch.randn(rows, 6)
        got, expected = exe(x, names), shapes_and_loops(x, names)
        torch.testing.assert_close(got[0], expected[0])
        assert got[1] == expected[1]


def differentiated(x):
    return torch.func.grad(lambda a: a.sin().sum())(x)


def drawn_from_a_generator(x):
    return x + torch.rand(3, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("fn", [differentiated, drawn_from_a_generator])
def test_what_export_cannot_trace_is_refused_and_leaves_nothing_behind(fn) -> None:
    with pytest.raises(Unsupported) as caught:
        compile(fn, (torch.randn(4, 3),), "evaluator", N)
    assert caught.value.stage == "capture"
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0


def test_another_parameter_in_the_place_of_one_is_refused_at_its_line() -> None:
    class Shrinking(torch.nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            self.weight = torch.nn.Parameter(self.weight * 0.9)
            return y

    module = Shrinking(3, 3)
    weight = module.weight
    with pytest.raises(Unsupported, match=r"another parameter in the place of Shrinking\.weight") as caught:
        compile(module, (torch.randn(4, 3),), "evaluator")
    assert "self.weight = torch.nn.Parameter" in str(caught.value)
    assert module.weight is weight
