"""Rows of recurrent layers and their cells."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.conformance.sources.functions.row import COMPLEX, FLOATS, Drawn, Function, Given, drawn, given

_IN, _HIDDEN = 3, 2


def _weights(gates: int, layers: int, directions: int, bias: bool) -> list[Drawn]:
    """The parameters of a recurrent layer in PyTorch's order: of the input, of the state, their biases."""
    found: list[Drawn] = []
    for layer in range(layers):
        for _ in range(directions):
            read = _HIDDEN * directions if layer else _IN
            found += [_small(gates * _HIDDEN, read), _small(gates * _HIDDEN, _HIDDEN)]
            found += [_small(gates * _HIDDEN), _small(gates * _HIDDEN)] if bias else []
    return found


def _small(*shape: int) -> Drawn:
    return drawn(*shape, low=-1, high=1)


def _layers(gates: int, cell_state: bool) -> Iterator[Given]:
    for layers, directions, bias, train, batch_first in (
        (1, 1, True, False, False),
        (2, 1, True, True, True),
        (1, 2, False, False, True),
        (2, 2, True, True, False),
    ):
        batch, length = (2, 3) if layers == 1 else (1, 2)
        shape = (batch, length, _IN) if batch_first else (length, batch, _IN)
        state = [_small(layers * directions, batch, _HIDDEN) for _ in range(1 + cell_state)]
        hx = state if cell_state else state[0]
        weights = _weights(gates, layers, directions, bias)
        yield given(_small(*shape), hx, weights, bias, layers, 0.0, train, directions == 2, batch_first)
    state = [_small(1, 3, _HIDDEN) for _ in range(1 + cell_state)]
    weights = _weights(gates, 1, 1, False)
    yield given(_small(1, 3, _IN), state if cell_state else state[0], weights, False, 1, 0.0, False, False, False)


def _cells(gates: int, cell_state: bool) -> Iterator[Given]:
    for batch, bias in ((2, True), (1, True), (3, False)):
        state = [_small(batch, _HIDDEN) for _ in range(1 + cell_state)]
        biases = [_small(gates * _HIDDEN)] * 2 if bias else []
        weights = _small(gates * _HIDDEN, _IN), _small(gates * _HIDDEN, _HIDDEN)
        yield given(_small(batch, _IN), state if cell_state else state[0], *weights, *biases)


RECURRENT = tuple(
    Function(
        name + suffix, (*FLOATS, *COMPLEX) if name != "rnn_relu" else FLOATS, tuple(samples(gates, name == "lstm"))
    )
    for name, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1))
    for suffix, samples in (("", _layers), ("_cell", _cells))
)
