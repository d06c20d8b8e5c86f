"""Objects of the user's classes among the results, and in the state, that the program made."""

import functools
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile


class Config:
    def __init__(self, width: int) -> None:
        self.width = width


class Layer:
    __slots__ = ("keys", "values")

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.keys, self.values = keys, values


@dataclass
class Cache:
    config: Config
    layers: list[Layer] = field(default_factory=list)
    dtype: torch.dtype = torch.float32
    length: int = 0

    def add(self, x: torch.Tensor) -> None:
        self.layers.append(Layer(x * 2, x.exp()))
        self.length += x.shape[0]


class Closing(Config):
    def __del__(self) -> None: ...


CONFIG = Config(4)


@functools.lru_cache
def remembered() -> Config:
    return Config(5)


def cached(x: torch.Tensor) -> dict[str, Any]:
    cache = Cache(CONFIG)
    cache.add(x)
    cache.add(x + 1)
    return {"cache": cache, "sum": x.sum()}


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_a_result_is_made_again_at_each_call(target: str) -> None:
    exe = compile(cached, (torch.randn(3),), target)
    x = torch.randn(3)
    results = [exe(x), exe(x)]
    for result in results:
        cache = result["cache"]
        assert type(cache) is Cache and cache.config is CONFIG and cache.dtype is torch.float32 and cache.length == 6
        assert [type(layer) for layer in cache.layers] == [Layer, Layer]
        for layer, expected in zip(cache.layers, cached(x)["cache"].layers, strict=True):
            torch.testing.assert_close((layer.keys, layer.values), (expected.keys, expected.values))
    assert results[0]["cache"] is not results[1]["cache"]
    results[0]["cache"].add(x)
    assert len(exe(x)["cache"].layers) == 2


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_a_result_of_any_size(target: str) -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    exe = compile(cached, (torch.randn(3),), target, {"x": {0: rows}})
    for count in (3, 5):
        x = torch.randn(count)
        result, expected = exe(x), cached(x)
        cache = result["cache"]
        assert type(cache) is Cache and cache.config is CONFIG and cache.dtype is torch.float32
        assert cache.length == 2 * count
        torch.testing.assert_close(result["sum"], expected["sum"])
        for layer, other in zip(cache.layers, expected["cache"].layers, strict=True):
            torch.testing.assert_close((layer.keys, layer.values), (other.keys, other.values))


def test_what_is_in_the_object_is_that_argument_or_a_view_of_it() -> None:
    exe = compile(lambda x: Layer(x, x[1:]), (torch.randn(3),))
    x = torch.randn(3)
    layer = exe(x)
    assert layer.keys is x and layer.values.data_ptr() == x[1:].data_ptr()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: Cache | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = Cache(CONFIG, [Layer(x + 1, x)])
        return x * 2


def test_an_object_is_left_behind() -> None:
    model = Model()
    exe = compile(model, (torch.randn(3),))
    assert model.last is None
    x = torch.randn(3)
    exe(x)
    assert model.last is not None and model.last.config is CONFIG
    torch.testing.assert_close(model.last.layers[0].keys, x + 1)


def test_an_object_that_was_there_before_stays_itself() -> None:
    assert compile(lambda x: (CONFIG, x + 1), (torch.ones(2),))(torch.ones(2))[0] is CONFIG


def in_two_places(x: torch.Tensor) -> Any:
    layer = Layer(x + 1, x)
    return layer, [layer]


def around(x: torch.Tensor) -> Any:
    cache = Cache(CONFIG)
    cache.layers.append(cache)  # pyright: ignore[reportArgumentType]
    return cache


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (in_two_places, "makes a Layer and puts it in two places"),
        (around, "makes a Cache and puts it in two places"),
        (lambda x: Closing(3), "makes a Closing, which a call could not make again"),
        (lambda x: ValueError(x + 1), "makes a ValueError, which a call could not make again"),
        (lambda x: torch.nn.Linear(3, 3), "makes a Linear, which a call could not make again"),
        (lambda x: (remembered(), x + 1), "a function with an lru_cache keeps too"),
    ],
)
def test_refused(fn: Any, why: str) -> None:
    remembered.cache_clear()
    with pytest.raises(Unsupported, match=why):
        compile(fn, (torch.randn(3),))


class Planned(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.inner.plan = {"in": (["x"], ["y"])}  # pyright: ignore[reportAttributeAccessIssue]
        self.plan = {"all": self.inner.plan["in"]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * len(self.plan["all"]) * len(self.inner.plan["in"])


def test_torch_export_leaves_no_copies_in_a_module() -> None:
    model = Planned()
    plan = model.plan["all"]
    exe = compile(model, (torch.randn(2, 3),), "evaluator", {"x": {0: torch.export.Dim("rows", min=2, max=64)}})
    assert model.plan["all"] is plan is model.inner.plan["in"]
    x = torch.randn(4, 3)
    torch.testing.assert_close(exe(x), model(x))
