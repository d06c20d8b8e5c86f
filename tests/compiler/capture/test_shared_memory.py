"""Results that share memory in eager share it here: what is written to one afterwards is seen in the same others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils import _pytree as pytree

from torchstone import compile
from torchstone.compiler.diagnostics import GuardError, Unsupported

View = Callable[[Tensor], Any]
VIEWS: dict[str, View] = {
    "t": lambda y: y.transpose(0, -1),
    "rows": lambda y: y[1:],
    "last": lambda y: y[-1:],
    "columns": lambda y: y[..., ::2],
    "view": lambda y: y.view(-1),
    "reshape": lambda y: y.reshape(-1),
    "reshape transposed": lambda y: y.transpose(0, -1).reshape(-1),
    "contiguous": lambda y: y.contiguous(),
    "flatten": lambda y: y.flatten(),
    "as_strided": lambda y: y.as_strided((2,), (3,), 1),
    "diagonal": lambda y: y.diagonal() if y.dim() > 1 else y,
    "expand": lambda y: y.unsqueeze(0).expand(2, *y.shape),
    "detach": lambda y: y.detach(),
    "dtype": lambda y: y.view(torch.int32),
    "split": lambda y: y.split(2),
    "chunk": lambda y: y.chunk(2, -1),
    "unfold": lambda y: y.unfold(0, 2, 1),
    "squeeze": lambda y: y[:1].squeeze(),
    "to": lambda y: y.to(torch.float32),
    "double": lambda y: y.double(),
    "self": lambda y: y,
    "written": lambda y: y.add_(1),
    "row written": lambda y: (y[0].zero_(), y[1:])[1],
    "other": lambda y: y * 2,
    "relu_": lambda y: torch.relu_(y),
}


NAMES = st.lists(st.sampled_from(list(VIEWS)), min_size=1, max_size=4)


def numbers() -> Tensor:
    return torch.arange(1.0, 25.0).reshape(4, 6)


def states(program: Callable[[Tensor], Any], x: Tensor) -> list[Any]:
    """What argument and results hold, before and after a write to each of them in turn."""
    tensors = [x, *(leaf for leaf in pytree.tree_leaves(program(x)) if isinstance(leaf, Tensor))]
    seen: list[Any] = [[t.clone() for t in tensors]]
    for number, tensor in enumerate(tensors):
        try:
            tensor[(0,) * tensor.dim()] = 100 + number
        except RuntimeError:
            seen.append("refused")  # expanded: one place for several elements
        seen.append([t.clone() for t in tensors])
    return seen


def agree(program: View, executable: View, make: Callable[[], Tensor]) -> None:
    wanted, got = states(program, make()), states(executable, make())
    for one, other in zip(wanted, got, strict=True):
        assert type(one) is type(other)
        for a, b in zip(one, other, strict=True) if isinstance(one, list) else ():
            assert a.dtype == b.dtype and torch.equal(a, b)


def shared(names: list[str], of_argument: bool) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        y = x if of_argument else x + 1
        return [VIEWS[name](y) for name in names]

    return program


@pytest.mark.parametrize("examples", [60, pytest.param(240, marks=pytest.mark.torture)])
def test_static(examples: int) -> None:
    taken = []

    @given(NAMES, st.booleans(), st.sampled_from(["linalg", "evaluator", "tosa", "tensorrt"]))
    @settings(max_examples=examples)
    def right_or_refused(names: list[str], of_argument: bool, target: str) -> None:
        program = shared(names, of_argument)
        try:
            executable = compile(program, (numbers(),), target=target)
        except Unsupported:
            taken.append(False)
            return
        taken.append(True)
        agree(program, executable, numbers)

    right_or_refused()
    assert sum(taken) > len(taken) / 2, "most are refused: nothing is tried"


@pytest.mark.torture
@pytest.mark.parametrize("examples", [10, pytest.param(50, marks=pytest.mark.torture)])
def test_dynamic(examples: int) -> None:
    taken = []

    @given(NAMES, st.booleans())
    @settings(max_examples=examples)
    def right_or_refused(names: list[str], of_argument: bool) -> None:
        program = shared(names, of_argument)
        any_size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
        try:
            executable = compile(program, (numbers(),), target="linalg", dynamic_shapes=((any_size),))
        except Unsupported:
            taken.append(0)
            return
        right = 0
        for make in (numbers, lambda: numbers()[:2].clone(), lambda: numbers().t(), lambda: numbers()[:, ::2]):
            try:
                program(make())
            except RuntimeError:
                continue
            try:
                agree(program, executable, make)
                right += 1
            except (GuardError, Unsupported):
                assert make is not numbers, "it refuses its own example"
        taken.append(right)

    right_or_refused()
    assert sum(right > 1 for right in taken) > len(taken) / 2, "most are refused: nothing is tried"


def test_real_and_imaginary_parts() -> None:
    def program(x: Tensor) -> Any:
        z = torch.complex(x, x + 1)
        return z, z.real, z.imag, torch.view_as_real(z), z.conj()

    x = numbers()
    got = compile(program, (x,), target="linalg")(x)
    got[1][0, 0] = 7
    assert got[0][0, 0] == 7 + 2j and got[3][0, 0, 0] == 7 and got[4][0, 0] == 7 - 2j


@pytest.mark.parametrize("rows", [1, 4])
def test_a_reshape_that_is_a_view_at_one_row_only(rows: int) -> None:
    def program(x: Tensor) -> Any:
        return x.t().reshape(-1)

    executable = compile(program, (numbers(),), target="linalg", dynamic_shapes=({0: torch.export.Dim("n", min=1)},))
    try:
        agree(program, executable, lambda: numbers()[:rows].clone())
    except GuardError:
        assert rows == 1


@pytest.mark.parametrize("of_argument", [True, False])
@pytest.mark.parametrize(
    "copy",
    [
        lambda y: y.contiguous(memory_format=torch.channels_last),
        lambda y: y.to(memory_format=torch.channels_last),
        lambda y: y.to(torch.float32, memory_format=torch.channels_last),
    ],
)
def test_a_copy_into_channels_last_that_is_spared_where_it_lies_so(copy: View, of_argument: bool) -> None:
    def program(x: Tensor) -> Any:
        y = x if of_argument else x + 1
        return y, copy(y)

    def images(channels: int) -> Tensor:
        return torch.arange(40.0 * channels).reshape(2, channels, 4, 5)

    channels = torch.export.Dim("c", min=1)
    executable = compile(program, (images(3),), target="linalg", dynamic_shapes=({1: channels},))
    agree(program, executable, lambda: images(3))
    agree(program, executable, lambda: images(2))
    for make in (lambda: images(1), lambda: images(3).to(memory_format=torch.channels_last)):
        try:
            agree(program, executable, make)
        except GuardError:
            x = make()
            y, copied = program(x)
            assert y.data_ptr() == copied.data_ptr()


@pytest.mark.parametrize("dynamic", [None, ({0: torch.export.Dim("n", min=3)},)], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "copy",
    [
        lambda x: x.clone(memory_format=torch.contiguous_format),
        lambda x: x[1:].clone(memory_format=torch.contiguous_format),
        lambda x: x.to(torch.float32, memory_format=torch.contiguous_format, copy=True),
    ],
)
def test_a_copy_of_an_argument_that_is_asked_for_is_made_of_any(copy: View, dynamic: Any) -> None:
    executable = compile(copy, (numbers(),), target="linalg", dynamic_shapes=dynamic)
    for make in (numbers, lambda: numbers().reshape(6, 4).t(), lambda: numbers().repeat(1, 2)[:, ::2]):
        agree(copy, executable, make)


def test_what_is_no_view_is_left_alone() -> None:
    x = numbers()
    one, other = compile(lambda x: (x + 1, (x + 1).t()), (x,), target="linalg")(x)
    one[0, 0] = 50
    assert other[0, 0] == 2


def test_a_copy_that_eager_spares_for_the_example_only_is_guarded() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.contiguous(), x.contiguous() * 2

    x = torch.randn(3, 4)
    exe = compile(program, (x,), "evaluator")
    assert exe(x)[0] is x
    with pytest.raises(GuardError, match="lies in memory in another way"):
        exe(torch.randn(4, 3).t())
    computed = compile(lambda x: x.contiguous().view(-1) * 2, (x,), "evaluator")
    y = torch.randn(4, 3).t()
    torch.testing.assert_close(computed(y), y.contiguous().view(-1) * 2)


def test_a_function_may_be_called_with_names_only() -> None:
    program = lambda x: torch.add(input=x, other=torch.ones(size=(3,)))  # noqa: E731
    x = torch.randn(3)
    torch.testing.assert_close(compile(program, (x,), "evaluator")(x), x + 1)


@pytest.mark.parametrize("value", [-8.478373527526855, 1e9, float("inf")])
def test_a_write_through_an_expanded_tensor_is_what_was_written(value: float) -> None:
    """PyTorch makes a sum of it: what was there, and the difference."""
    x = torch.tensor([value, -1.75])
    for fn in (
        lambda t: torch.meshgrid([t], indexing="ij")[0].sinc_(),
        lambda t: t.clone().expand(1, 2).sinc_(),
        lambda t: t.expand(-1).copy_(t / 3),
    ):
        found = compile(fn, (x.clone(),), target="linalg")(x.clone())
        torch.testing.assert_close(found, fn(x.clone()), equal_nan=True)


def expanded_sizes(t: torch.Tensor) -> torch.Tensor:
    y = t * 1
    y.expand(1, t.shape[0]).exp_()
    return y


def expanded_to_another(t: torch.Tensor) -> torch.Tensor:
    y = t * 1
    torch.broadcast_tensors(y, t.new_ones(1))[0].exp_()
    return y


@pytest.mark.parametrize("program", [expanded_sizes, expanded_to_another])
def test_so_it_is_at_any_size_and_as_a_backend_of_torch_compile(program: Any) -> None:
    """PyTorch functionalizes there, in a way of its own: of exp(-30) beside -30 it leaves 0."""
    x = torch.tensor([-30.0, 0.0, 1.0])
    wanted = program(x)
    assert wanted[0] > 0
    dynamic = compile(program, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    torch.testing.assert_close(dynamic(x), wanted, atol=0, rtol=1e-6)
    torch.testing.assert_close(dynamic(x.repeat(2)), program(x.repeat(2)), atol=0, rtol=1e-6)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(program, backend="torchstone")(x), wanted, atol=0, rtol=1e-6)


def test_a_write_to_one_of_the_rows_that_are_one_is_refused() -> None:
    def program(t: torch.Tensor) -> torch.Tensor:
        return t.expand(3, t.shape[0])[0].sinc_()

    for sizes in (None, ({0: torch.export.Dim.AUTO},)):
        with pytest.raises(Unsupported, match="a part of an expanded tensor"):
            compile(program, (torch.ones(2),), target="linalg", dynamic_shapes=sizes)


@pytest.mark.few(1)
@pytest.mark.parametrize(("size", "step"), [(1, 2), (2, 2), (2, 1)])
def test_a_write_to_windows_is_refused(size: int, step: int) -> None:
    """PyTorch leaves zeros between them, and after the last. What is only read stays a view."""

    def program(t: torch.Tensor) -> torch.Tensor:
        t.unfold(0, size, step)[0].fill_(7)
        return t

    def read(t: torch.Tensor) -> torch.Tensor:
        windows = t.unfold(0, size, step)
        t.mul_(2)
        return windows * 1

    x = torch.arange(5.0)
    for sizes in (None, ({0: torch.export.Dim.AUTO},)):
        with pytest.raises(Unsupported, match="writes to windows that unfold made"):
            compile(program, (x.clone(),), dynamic_shapes=sizes)
        assert torch.equal(compile(read, (x.clone(),), dynamic_shapes=sizes)(x.clone()), read(x.clone()))
