"""Modules of torch.nn that draw random numbers when they train, which PyTorch's own module database leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Given:
    """The arguments of a call, as samples of PyTorch's database hold them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class ModuleSample:
    """A module to make, and what to call it with."""

    constructor_input: Given
    forward_input: Given


@dataclass(frozen=True)
class RandomModule:
    """A row: a module with the fields of PyTorch's ``ModuleInfo`` that the source ``modules`` reads.

    Each of ``settings`` goes with each of ``inputs``, which make the arguments of forward in a dtype.
    """

    name: str
    module_cls: type[nn.Module]
    settings: Sequence[Arguments]
    inputs: Sequence[Callable[[torch.dtype], tuple[Tensor, ...]]]
    dtypes: tuple[torch.dtype, ...] = FLOATS

    def module_inputs_func(self, info: Any, *, dtype: torch.dtype, **_: Any) -> list[ModuleSample]:
        """The samples of a dtype, as the database's own functions give them."""
        return [
            ModuleSample(Given(*setting), Given(make(dtype), {})) for setting in self.settings for make in self.inputs
        ]


def _of_shape(*shape: int) -> Callable[[torch.dtype], tuple[Tensor, ...]]:
    return lambda dtype: (torch.randn(shape).to(dtype),)


def _thrice(*shape: int) -> Callable[[torch.dtype], tuple[Tensor, ...]]:
    return lambda dtype: tuple(torch.randn(shape).to(dtype) for _ in range(3))


_PROBABILITIES: tuple[Arguments, ...] = (((), {}), ((0.25,), {}), ((0.0,), {}), ((1.0,), {}), ((), {"inplace": True}))
_SLOPES: tuple[Arguments, ...] = (((), {}), ((0.25, 0.5), {}), ((), {"inplace": True}))
_LAYERS: tuple[Arguments, ...] = (((3, 4), {"num_layers": 2, "dropout": 0.5}),)
_ENCODER = {"dim_feedforward": 8, "dropout": 0.25, "batch_first": True}
_WIDE = (torch.float32, torch.float64)

_ROWS = (
    RandomModule("nn.Dropout", nn.Dropout, _PROBABILITIES, (_of_shape(4, 5), _of_shape(3), _of_shape())),
    RandomModule("nn.Dropout1d", nn.Dropout1d, _PROBABILITIES, (_of_shape(3, 4, 5), _of_shape(4, 5))),
    RandomModule("nn.Dropout2d", nn.Dropout2d, _PROBABILITIES, (_of_shape(2, 6, 3, 4),)),
    RandomModule("nn.Dropout3d", nn.Dropout3d, _PROBABILITIES, (_of_shape(2, 6, 2, 3, 2), _of_shape(6, 2, 3, 2))),
    RandomModule("nn.AlphaDropout", nn.AlphaDropout, _PROBABILITIES, (_of_shape(4, 5), _of_shape(7))),
    RandomModule(
        "nn.FeatureAlphaDropout", nn.FeatureAlphaDropout, _PROBABILITIES, (_of_shape(2, 6, 3, 4), _of_shape(4, 6, 3))
    ),
    RandomModule(
        "nn.RReLU", nn.RReLU, _SLOPES, (_of_shape(4, 5), _of_shape()), (torch.float32, torch.float64, torch.bfloat16)
    ),
    RandomModule("nn.RNN.with_dropout", nn.RNN, _LAYERS, (_of_shape(5, 2, 3),), _WIDE),
    RandomModule("nn.GRU.with_dropout", nn.GRU, _LAYERS, (_of_shape(5, 2, 3),), _WIDE),
    RandomModule("nn.LSTM.with_dropout", nn.LSTM, _LAYERS, (_of_shape(5, 2, 3),), _WIDE),
    RandomModule(
        "nn.MultiheadAttention.with_dropout", nn.MultiheadAttention, (((4, 2, 0.25), {}),), (_thrice(3, 2, 4),), _WIDE
    ),
    RandomModule(
        "nn.TransformerEncoderLayer.with_dropout", nn.TransformerEncoderLayer, (((4, 2), _ENCODER),),
        (_of_shape(2, 3, 4),), _WIDE,
    ),
)  # fmt: skip
RANDOM_MODULES: Mapping[str, RandomModule] = {row.name: row for row in _ROWS}


def missing(known: Mapping[str, Any]) -> Iterator[RandomModule]:
    """Yield the rows that a release of PyTorch has none of its own for."""
    yield from (row for name, row in RANDOM_MODULES.items() if name not in known)
