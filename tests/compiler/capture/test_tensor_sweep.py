"""Whatever a tensor tells that is no tensor: the same as in eager for tensors of all sorts, or refused."""

from __future__ import annotations

import functools
import warnings

import pytest
import torch
from torch import nn

import torchstone
from torchstone.compiler.diagnostics import TorchstoneError

example = torch.arange(6.0).reshape(2, 3)


def others():
    """Tensors of the example's type that differ from it in one thing each."""
    yield example.clone()
    yield example + 1
    yield example.clone().requires_grad_()
    yield example.clone().requires_grad_() * 1
    yield nn.Parameter(example.clone())
    yield example.t().contiguous().t()
    yield torch.cat([example, example])[2:]
    yield example.clone().add_(0)
    yield torch._neg_view(-example)
    with torch.inference_mode():
        yield example.clone()
    with_grad = example.clone().requires_grad_()
    with_grad.grad = example.clone()
    yield with_grad
    yield example.clone().share_memory_()


ARGUMENTS = {
    "__contains__": (2.0,),
    "__format__": ("",),
    "__reduce_ex__": (2,),
    "allclose": (example,),
    "equal": (example,),
    "is_same_size": (example,),
    "is_set_to": (example,),
    "size": (0,),
    "stride": (0,),
}
# Not asked: they are Python's own, not of a tensor, or told of in another test.
LEFT_OUT = frozenset(
    {"__class__", "__dir__", "__init_subclass__", "__subclasshook__", "__new__", "__init__", "__hash__", "__sizeof__"}
    | {"_python_dispatch"}  # of PyTorch's own machinery
    | {"__getstate__", "__module__", "__doc__", "__weakref__", "__torch_function__", "__torch_dispatch__", "__dict__"}
)
FUNCTIONS = (
    "get_device", "is_complex", "is_conj", "is_distributed", "is_floating_point", "is_inference", "is_neg",
    "is_nonzero", "is_signed", "is_tensor", "numel", "typename",
)  # fmt: skip


_PLAIN = (bool, int, float, str, torch.dtype, torch.device, torch.layout)


def method(name, x):
    found = getattr(x, name)
    return found(*ARGUMENTS.get(name, ())) if callable(found) else found


def told(question, x):
    """Return what a tensor tells, NotImplemented where that is a tensor, or nothing but the tensor's own class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answer = question(x)
            plain = answer is None or isinstance(answer, _PLAIN)
            nested = isinstance(answer, tuple | list) and "tensor" not in repr(answer)
        except Exception:
            return NotImplemented
    return answer if plain or nested else NotImplemented


QUESTIONS = {
    **{n: functools.partial(method, n) for n in dir(torch.Tensor) if not n.endswith("_") or n.startswith("__")},
    **{f"torch.{name}": getattr(torch, name) for name in FUNCTIONS},
}
ASKED = [n for n in QUESTIONS if n not in LEFT_OUT and told(QUESTIONS[n], example.clone()) is not NotImplemented]


def test_the_sweep_finds_what_tensors_tell():
    assert {"stride", "requires_grad", "is_leaf", "__repr__", "tolist", "shape", "_version", "torch.is_conj"} <= {
        *ASKED
    }


@pytest.mark.few(51)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("name", ASKED)
def test_what_a_tensor_tells_is_right_or_refused(name, writes):
    question = QUESTIONS[name]

    def program(x):
        out = x + 0
        return question(x), out.add_(1) if writes else out

    given = example.clone()
    try:
        compiled = torchstone.compile(program, (given,), "evaluator")
    except TorchstoneError:
        return
    assert told(lambda x: compiled(x)[0], given) == question(given)
    for other in others():
        try:
            got = compiled(other)[0]
        except TorchstoneError:
            continue
        assert got == question(other)
