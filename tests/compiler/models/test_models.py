"""Whole models against eager: forward, at other batch sizes than compiled for, and a step of training."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import nn

from tests.compiler.models.examples import EXAMPLES, dynamic, loss_of
from torchstone.compiler.driver import compile

CELLS = [*itertools.product(("evaluator", "linalg"), EXAMPLES)]
# Dynamo takes its time. The others are trained without it all the same, and `test_dynamo.py` has a batch norm.
SHORT = ("mlp", "lstm")
# What has to be right at any size is the capture, which knows of no target: each is asked of every model, and both of
# the smallest. A step of training compiles twice as much, so that the large ones are asked of one target, too.
LARGE = ("resnet", "unet")
ANY_SIZE = {("linalg", name) for name in ("mlp", "lstm", "gpt-cached")} | {
    ("evaluator", name) for name in EXAMPLES if name not in ("lstm", "gpt-cached")
}


def state_of(model: nn.Module) -> list[Any]:
    return [list(model.parameters()), list(model.buffers()), [p.grad for p in model.parameters()]]


@pytest.mark.few(7)
@pytest.mark.parametrize(("target", "name"), CELLS)
def test_forward(target: str, name: str) -> None:
    example = EXAMPLES[name]
    model = example.model().eval()
    exe = compile(model, example.args(3), target)
    args = example.args(3)
    torch.testing.assert_close(exe(*args), model(*args))
    assert not exe.library_calls


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore:The tensor attributes self.lstm")  # torch.export, of PyTorch's own LSTM
@pytest.mark.parametrize(
    ("target", "name"),
    [pytest.param(*cell, marks=() if cell in ANY_SIZE else pytest.mark.torture) for cell in CELLS],
)
def test_forward_at_any_batch_size(target: str, name: str) -> None:
    example = EXAMPLES[name]
    model = example.model()
    reference = copy.deepcopy(model)
    exe = compile(model, example.args(3), target, dynamic(example))
    for batch in (3, 5, 2):
        args = example.args(batch)
        torch.testing.assert_close(exe(*args), reference(*args))
        torch.testing.assert_close(state_of(model), state_of(reference))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("target", "name"),
    [
        pytest.param(*cell, marks=pytest.mark.torture if cell in {("linalg", name) for name in LARGE} else ())
        for cell in CELLS
    ],
)
def test_a_step_of_training(target: str, name: str) -> None:
    example = EXAMPLES[name]

    def step_of(model: nn.Module) -> Any:
        def step(*args: Any) -> torch.Tensor:
            loss = loss_of(model(*args))
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
            return loss

        return step

    model, reference = example.model(), example.model()
    args = example.args(3)
    exe = compile(step_of(model), args, target)
    torch.testing.assert_close(exe(*args), step_of(reference)(*args).detach())
    torch.testing.assert_close(state_of(model), state_of(reference))


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("target", "name"),
    [pytest.param("evaluator", n, marks=() if n in SHORT else pytest.mark.torture) for n in EXAMPLES],
)
@torch._dynamo.config.patch(allow_rnn=True)
def test_training_under_torch_compile(target: str, name: str) -> None:
    torch._dynamo.reset()
    example = EXAMPLES[name]
    model, reference = example.model(), example.model()
    compiled = torch.compile(model, backend="torchstone", options={"target": target}, fullgraph=True)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, reference)]
    for batch in (3, 5):
        args = example.args(batch)
        for one, optimizer in zip((compiled, reference), optimizers, strict=True):
            optimizer.zero_grad()
            loss_of(one(*args)).backward()
            optimizer.step()
        torch.testing.assert_close(state_of(model), state_of(reference))
    torch._dynamo.reset()


def test_a_decoder_goes_on_from_the_cache_that_it_returns() -> None:
    example = EXAMPLES["gpt"]
    model = example.model().eval()
    prompt, rest = torch.randint(0, 32, (2, 5)), torch.randint(0, 32, (2, 4))
    batch, length = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("length", max=31)
    first = compile(model, (prompt,), "evaluator")
    cache = first(prompt)[1]
    shapes = ({0: batch}, [({0: batch, 2: length}, {0: batch, 2: length})])
    one_more = compile(model, (rest[:, :1], cache), "evaluator", shapes)
    for place in range(rest.shape[1]):
        logits, cache = one_more(rest[:, place : place + 1], cache)
    expected, _ = model(torch.cat([prompt, rest], 1))
    torch.testing.assert_close(logits[:, -1], expected[:, -1])
