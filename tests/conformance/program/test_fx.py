"""A program that takes gradients in parts: what is compiled of it, and what autograd does with that."""

from __future__ import annotations

import torch

from torchstone.conformance.program.fx import around_gradients, compiled_forward
from torchstone.conformance.program.program import Call, Program, Ref

GRAD = "torch.autograd.grad"


def leaf(name: str) -> tuple[Call, Call]:
    return (
        Call("torch.Tensor.detach", (Ref(name),), {}, f"{name}_data"),
        Call("torch.Tensor.requires_grad_", (Ref(f"{name}_data"),), {}, f"{name}_leaf"),
    )


def half(name: str, target: str) -> list[Call]:
    taken = Call(GRAD, ([Ref(f"{name}_r")], [Ref(f"{name}_leaf")], [Ref("c")]), {}, f"{name}_g")
    return [*leaf(name), Call(target, (Ref(f"{name}_leaf"),), {}, f"{name}_r"), taken]


TWICE = Program(
    ("x", "y", "c"), (*half("x", "torch.exp"), *half("y", "torch.sin")), (Ref("x_g"), Ref("y_g"), Ref("y_r"))
)


def test_all_that_hangs_on_no_gradient_is_forward() -> None:
    parts = around_gradients(TWICE)
    assert parts is not None
    leaves, forward, rest = parts
    assert [call.result for call in leaves.calls] == ["x_data", "x_leaf", "y_data", "y_leaf"]
    assert [call.target for call in forward.calls] == ["torch.exp", "torch.sin"]
    assert [call.target for call in rest.calls] == [GRAD, GRAD]
    assert around_gradients(Program(("x",), (Call("torch.exp", (Ref("x"),), {}, "r"),), Ref("r"))) is None


def test_what_comes_after_gradients_stays_there_where_memory_is_written_to() -> None:
    written = Call("torch.Tensor.mul_", (Ref("y"), 2), {}, "w")
    parts = around_gradients(Program(("x", "y", "c"), (*half("x", "torch.exp"), written), (Ref("x_g"), Ref("w"))))
    assert parts is not None
    assert [call.target for call in parts[1].calls] == ["torch.exp"]
    assert [call.target for call in parts[2].calls] == [GRAD, "torch.Tensor.mul_"]


def test_autograd_runs_through_what_was_compiled() -> None:
    args = torch.randn(3), torch.randn(3), torch.ones(3)
    for wrong, factor in ((False, 1.0), (True, 2.0)):

        class Wrong(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):  # type: ignore[no-untyped-def]
                return x.clone()

            @staticmethod
            def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
                return gradients[0] * 2

        def compile(module, wrong=wrong):  # type: ignore[no-untyped-def]
            return lambda *tensors: [Wrong.apply(result) if wrong else result for result in module(*tensors)]

        (x,), (y,), r = compiled_forward(TWICE, args, compile)(*args)
        torch.testing.assert_close(x, args[0].exp() * factor)
        torch.testing.assert_close(y, args[1].cos() * factor)
        torch.testing.assert_close(r.detach(), args[1].sin())


def test_zeros_of_a_step_that_is_one_are_no_gradient_where_eager_has_none_and_numbers_are() -> None:
    taken = Call(GRAD, ([Ref("r")], [Ref("y_leaf")], [Ref("c")]), {"allow_unused": True}, "g")
    calls = (*leaf("x"), *leaf("y"), Call("torch.exp", (Ref("x_leaf"),), {}, "r"), taken)
    program = Program(("x", "y", "c"), calls, (Ref("g"),))
    args = torch.randn(3), torch.randn(3), torch.ones(3)
    assert program(*args) == ((None,),)
    for factor in (0.0, 1.0):

        def compile(module, factor=factor):  # type: ignore[no-untyped-def]
            """Results that hang on every leaf, as those of one step of autograd do."""
            return lambda *given: [
                result + factor * sum(tensor for tensor in given if tensor.requires_grad) for result in module(*given)
            ]

        ((gradient,),) = compiled_forward(program, args, compile)(*args)
        assert (gradient is None) == (factor == 0)
