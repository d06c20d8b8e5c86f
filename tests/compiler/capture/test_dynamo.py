"""``torch.compile(..., backend="torchstone")``: forward and backward are compiled, sizes and numbers may change."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.sampling import covering
from torchstone.compiler.diagnostics import GuardError, TorchstoneError
from torchstone.compiler.runtime.tensorrt import simulator

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(fn, target="evaluator", **options):
    return torch.compile(fn, backend="torchstone", options={"target": target, **options}, fullgraph=True)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.last.weight = nn.Parameter(self.first.weight.detach().t().clone())

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x)))) + x


@pytest.mark.few(1)
@pytest.mark.parametrize(("target", "dynamic"), covering(["evaluator", "linalg"], [None, True, False], strength=1))
def test_training_steps_are_those_of_eager(target: str, dynamic) -> None:
    model = Net().double()
    reference = copy.deepcopy(model)
    step = torch.compile(model, backend="torchstone", options={"target": target}, dynamic=dynamic)
    for batch in (5, 7, 2):
        x = torch.randn(batch, 3, dtype=torch.float64, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        got, expected = step(x), reference(y)
        torch.testing.assert_close(got, expected)
        got.square().mean().backward()
        expected.square().mean().backward()
        torch.testing.assert_close(x.grad, y.grad)
        for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)
        for mine, theirs in zip(model.buffers(), reference.buffers(), strict=True):
            torch.testing.assert_close(mine, theirs)


def test_evaluation_mode_is_another_program() -> None:
    model = Net()
    step = compiled(model)
    x = torch.randn(5, 3)
    step(x)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(step(x), model(x))


@pytest.mark.few(1)
@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_ints_and_floats_change_from_call_to_call(target: str) -> None:
    def program(x, start, factor):
        return x[start:] * factor + start

    seen = torch._dynamo.testing.CompileCounter()
    step, counted = compiled(program, target), torch.compile(program, backend=seen)
    x = torch.randn(7, 3)
    for start, factor in ((1, 2.5), (2, 3.5), (4, 0.1), (3, -1.0), (-2, 4.5), (0, 1.0)):
        counted(x, start, factor)
        torch.testing.assert_close(step(x, start, factor), program(x, start, factor))
    assert seen.frame_count < 6


def test_a_result_that_is_a_view_of_an_argument_shares_its_memory() -> None:
    x = torch.zeros(2, 3)
    out = compiled(lambda x: (x.t(), x + 1))(x)[0]
    out.fill_(7)
    assert torch.equal(x, torch.full((2, 3), 7.0))


def test_arguments_are_written_to() -> None:
    def program(x, y):
        x.add_(y)
        y.view(-1)[1:].mul_(2)
        return x.sum()

    one = (torch.ones(2, 3), torch.arange(6.0).view(2, 3))
    two = copy.deepcopy(one)
    torch.testing.assert_close(compiled(program)(*one), program(*two))
    torch.testing.assert_close(one, two)


def test_results_have_the_strides_that_pytorch_relies_on() -> None:
    def program(x):
        base = x.t() + 1  # eager keeps the strides of x.t()
        return base, base.t(), base[1:]

    x = torch.randn(3, 4)
    got, expected = compiled(program)(x), program(x)
    torch.testing.assert_close(got, expected)
    assert [t.stride() for t in got] == [t.stride() for t in expected]


def test_control_flow_on_numbers_and_containers() -> None:
    def program(inputs, n, *, scale=1.0):
        out = [inputs["a"] * i for i in range(n)]
        if n > 2:
            out.append(inputs["b"])
        return {"sum": sum(out) * scale, "n": n + 1, "none": None}

    step = compiled(program)
    inputs = {"a": torch.randn(3), "b": torch.randn(3)}
    for n in (1, 2, 3, 4):
        got, expected = step(inputs, n, scale=0.5), program(inputs, n, scale=0.5)
        torch.testing.assert_close(got["sum"], expected["sum"])
        assert got["n"] == expected["n"] and got["none"] is None


def test_graph_breaks_leave_compiled_pieces() -> None:
    def program(x):
        y = torch.softmax(x, -1)
        torch._dynamo.graph_break()
        return y * 2

    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.compile(program, backend="torchstone")(x), program(x))


def test_double_use_of_one_tensor() -> None:
    x = torch.randn(3)
    torch.testing.assert_close(compiled(lambda a, b: a * 2 + b)(x, x), x * 3)


def test_what_the_target_does_not_take_is_an_error_with_the_users_line() -> None:
    def program(x):
        return torch.linalg.inv(x + 1)

    with pytest.raises(Exception, match=r"linalg_inv_ex") as caught:
        compiled(program, library_calls=False)(torch.eye(3))
    assert "return torch.linalg.inv(x + 1)" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"targt": "linalg"},
            r'no option "targt" \(did you mean "target"\?\); target linalg has target, library_calls\n',
        ),
        ({"target": "x"}, "no target"),
        (
            {"target": "tensorrt", "engine_cach": "x"},
            r'did you mean "engine_cache"\?\); .* has .*, timing_cache, engine',
        ),
        ({"target": "tensorrt", "workspace": 0}, "workspace: a positive number of bytes is needed, got 0"),
        ({"target": "tensorrt", "profiles": [{"n": (1, 2, 3)}]}, 'no dynamic size "n"; there is none'),
    ],
)
def test_unknown_options_are_errors(options, message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        torch.compile(torch.sin, backend="torchstone", options=options)(torch.ones(2))
    assert isinstance(caught.value, TorchstoneError) or "TorchstoneError" in str(caught.value)


def test_tensorrt_has_its_own_options(tmp_path) -> None:
    """They hold for the forward and the backward graph; a second compilation finds both engines."""
    built = []
    build = simulator.Builder.build_serialized_network
    options = {"workspace": 1 << 20, "timing_cache": tmp_path / "timings", "engine_cache": tmp_path / "engines"}
    model, x = nn.Linear(3, 2), torch.ones(4, 3)
    expected = torch.autograd.grad(model(x).square().sum(), [*model.parameters()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.Builder, "build_serialized_network", lambda *args: built.append(args) or build(*args))
        for count in (2, 2):
            torch._dynamo.reset()
            found = torch.autograd.grad(compiled(model, "tensorrt", **options)(x).square().sum(), [*model.parameters()])
            torch.testing.assert_close(found, expected)
            assert len(built) == count == len([*(tmp_path / "engines").iterdir()])
    assert {config.get_memory_pool_limit(simulator.MemoryPoolType.WORKSPACE) for *_, config in built} == {1 << 20}
    assert (tmp_path / "timings").is_file()


def test_profiles_go_by_the_order_of_dynamic_sizes() -> None:
    step = compiled(lambda x, y: (x.sum(0) + y.sum(0)).sin(), "tensorrt", profiles=[{"s1": (2, 3, 4)}])
    for rows in (2, 4):
        x, y = torch.randn(6, 3), torch.randn(rows, 3)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
        torch._dynamo.mark_dynamic(y, 0)
        torch.testing.assert_close(step(x, y), (x.sum(0) + y.sum(0)).sin())
    with pytest.raises(GuardError, match="dim 0 of %x1, s1, is 5, and the profiles take 2 to 4"):
        step(torch.randn(2, 3), torch.randn(5, 3))


def test_a_marked_range_is_the_profile_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    build = simulator.Builder.build_serialized_network

    def noted(builder, network, config):
        shapes.extend(profile.get_shape("input0") for profile in config._profiles)
        return build(builder, network, config)

    monkeypatch.setattr(simulator.Builder, "build_serialized_network", noted)
    step, x = compiled(torch.sin, "tensorrt"), torch.randn(6, 3)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
    torch.testing.assert_close(step(x), x.sin())
    torch.testing.assert_close(step(x[:2]), x[:2].sin())
    assert shapes == [[(2, 3), (6, 3), (64, 3)]]


@pytest.mark.torture
def test_it_is_found_by_name_and_imported_when_asked_for() -> None:
    script = (
        "import sys, torchstone; assert 'torch' not in sys.modules\n"
        "import torchstone.compiler.driver; assert 'torch._dynamo.backends.common' not in sys.modules\n"
        "import torch; assert 'torchstone' in torch.compiler.list_backends()"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_loss_inside_the_program() -> None:
    model = nn.Linear(4, 3).double()
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(0, 3, (6,))
    loss = compiled(lambda x, y: F.cross_entropy(model(x), y))(x, y)
    loss.backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    torch.testing.assert_close(grads, [p.grad for p in model.parameters()])
