"""Backward inside the program: its ATen calls are recorded too, and what it accumulates is written back."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double()


def data() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)


def step_of(net: nn.Module, rate: float = 0.0):
    def step(x, y):
        loss = F.mse_loss(net(x), y)
        loss.backward()
        if rate:
            with torch.no_grad():
                for p in net.parameters():
                    p -= rate * p.grad
        return loss

    return step


def assert_same_state(one: nn.Module, two: nn.Module) -> None:
    torch.testing.assert_close(one.state_dict(), two.state_dict())
    torch.testing.assert_close([p.grad for p in one.parameters()], [p.grad for p in two.parameters()])


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_backward_accumulates_into_the_parameters(target: str) -> None:
    net, reference = model(), model()
    exe = compile(step_of(net), data(), target)
    assert_same_state(net, reference)
    assert all(p.grad is None for p in net.parameters())
    for _ in range(3):
        x, y = data()
        torch.testing.assert_close(exe(x, y), step_of(reference)(x, y).detach())
        assert_same_state(net, reference)


def test_parameters_are_updated_by_the_program() -> None:
    net, reference = model(), model()
    exe = compile(step_of(net, 0.1), data(), "evaluator")
    for _ in range(3):
        x, y = data()
        torch.testing.assert_close(exe(x, y), step_of(reference, 0.1)(x, y).detach())
        assert_same_state(net, reference)
        with pytest.raises(GuardError, match="looks at gradients"):
            exe(x, y)
        net.zero_grad()
        reference.zero_grad()


def test_capture_gives_parameters_the_gradients_back_that_they_had() -> None:
    net = nn.Linear(3, 2).double()
    x, y = data()
    F.mse_loss(net(x), y).backward()
    had = [(p.grad, p.grad.clone()) for p in net.parameters()]
    compile(step_of(net), (x, y), "evaluator")
    for p, (grad, values) in zip(net.parameters(), had, strict=True):
        assert p.grad is grad and torch.equal(grad, values)


@pytest.mark.parametrize("order", [1, 2])
def test_gradients_as_results(order: int) -> None:
    def program(x, w):
        (out,) = torch.autograd.grad((torch.sin(x * w) ** 3).sum(), w, create_graph=True)
        for _ in range(order - 1):
            (out,) = torch.autograd.grad(out.sum(), w, create_graph=True)
        return out

    x, w = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(compile(program, (x, w), "evaluator")(x, w), program(x, w).detach())


@pytest.mark.parametrize("enabled", [True, False])
def test_a_gradient_through_a_composite_op_at_any_size(enabled: bool) -> None:
    def program(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        out = F.avg_pool1d(leaf, 2, stride=2, padding=1, count_include_pad=False, ceil_mode=True)
        return torch.autograd.grad([out], [leaf], [grad])[0] if out.requires_grad else out

    auto = torch.export.Dim.AUTO
    with torch.set_grad_enabled(enabled):
        first, second = ((torch.rand(1, 2, n), torch.rand(1, 2, n // 2 + 1)) for n in (5, 9))
        exe = compile(program, first, "linalg", ({2: auto}, {2: auto}))
        for args in (first, second):
            torch.testing.assert_close(exe(*args), program(*args))


def test_backward_reaches_the_arguments() -> None:
    x = torch.randn(4, requires_grad=True)
    exe = compile(lambda x: (x**2).sum().backward(), (x,), "evaluator")
    assert x.grad is None
    assert exe(x) is None
    torch.testing.assert_close(x.grad, 2 * x.detach())
    with pytest.raises(GuardError, match="no leaf"):
        exe(x * 1)


def test_an_optimizer_inside_runs_or_is_refused_and_compiling_leaves_no_trace() -> None:
    def step_of(net, optimizer):
        def step(x, y):
            F.mse_loss(net(x), y).backward()
            optimizer.step()

        return step

    for momentum in (0.0, 0.9):
        net, reference = model(), model()
        reference.load_state_dict(net.state_dict())
        before = copy.deepcopy(net.state_dict())
        step, eager = (step_of(n, torch.optim.SGD(n.parameters(), lr=0.1, momentum=momentum)) for n in (net, reference))
        if momentum:  # what it remembers is in a dict, under the parameters
            with pytest.raises(Unsupported, match="whose keys are tensors") as caught:
                compile(step, data(), "evaluator")
            assert "optimizer.step()" in str(caught.value)
        else:
            args = data()
            exe = compile(step, args, "evaluator")
        torch.testing.assert_close(net.state_dict(), before, rtol=0, atol=0)
        assert all(p.grad is None for p in net.parameters())
        if not momentum:
            exe(*args), eager(*args)
            torch.testing.assert_close(net.state_dict(), reference.state_dict())


def test_a_parameter_held_beside_its_module_is_one_with_the_modules() -> None:
    net, reference = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    weight = net.weight
    x = torch.randn(4, 3)
    exe = compile(lambda x: net(x) * weight, (x,), "evaluator")
    torch.testing.assert_close(exe(x), (reference(x) * reference.weight).detach())
    torch.testing.assert_close(net.state_dict(), reference.state_dict())
    net.weight = nn.Parameter(torch.ones(3))
    with pytest.raises(GuardError, match="were one tensor when compiled"):
        exe(x)


def test_a_gradient_from_before_is_no_part_of_a_program() -> None:
    weight = torch.randn(3, requires_grad=True)
    weight.sum().backward()
    with pytest.raises(Unsupported, match="a gradient from before"):
        compile(lambda x: x + weight.grad, (torch.randn(3),), "evaluator")


def test_loops_checkpoints_and_custom_functions_are_captured() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    def program(x):
        x = x.detach().requires_grad_()
        loss = torch.utils.checkpoint.checkpoint(lambda y: Double.apply(torch.sin(y)), x, use_reentrant=False).sum()
        return torch.autograd.grad(loss, x)[0]

    x = torch.randn(4)
    torch.testing.assert_close(compile(program, (x,), "evaluator")(x), program(x))


def test_ops_with_effects_under_functionalization() -> None:
    """The gradient of an eigendecomposition checks for errors, which PyTorch takes for an effect."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        torch.linalg.eigvals(x).abs().sum().backward()
        assert x.grad is not None
        return x.grad.mul_(2)

    x = torch.randn(3, 3) + torch.diag(torch.arange(3.0) * 5)
    torch.testing.assert_close(compile(program, (x,))(x), program(x), rtol=1e-4, atol=1e-4)


def test_ops_with_effects_beside_a_size_that_varies() -> None:
    """PyTorch's export hands the program a token, which puts effects in order."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(torch.linalg.eigvals(x).abs().sum(), x)
        return gradient.sum() + y

    x = torch.randn(3, 3) + torch.diag(torch.arange(3.0) * 5)
    exe = compile(program, (x, torch.randn(4)), dynamic_shapes=(None, {0: torch.export.Dim.DYNAMIC}))
    y = torch.randn(6)
    torch.testing.assert_close(exe(x, y), program(x, y), rtol=1e-4, atol=1e-4)


def test_an_lstm_is_made_of_simpler_ops() -> None:
    lstm = torch.nn.LSTM(3, 4).eval()
    x = torch.randn(5, 2, 3)
    with torch.no_grad():
        executable = compile(lstm, (x,))
        torch.testing.assert_close(executable(x), lstm(x))
    assert not executable.library_calls and torch.backends.mkldnn.enabled
