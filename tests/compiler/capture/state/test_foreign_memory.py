"""Tensors in the memory of arrays: read at each call, or the program is refused, and compiling writes to none."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
import torch
from torch import from_numpy as imported

import torchstone
from torchstone.compiler.diagnostics import GuardError, Unsupported

ones = torch.ones(2)
buffer = np.zeros(2, dtype=np.float32)
bytes_ = bytearray(8)
records = np.zeros(2, dtype=[("a", np.float32)])
numbers = array("f", [0.0, 0.0])
shared = torch.from_numpy(buffer)

MAKERS = {
    "from_numpy": lambda: torch.from_numpy(buffer),
    "imported": lambda: imported(buffer),
    "as_tensor": lambda: torch.as_tensor(buffer),
    "asarray": lambda: torch.asarray(buffer),
    "frombuffer": lambda: torch.frombuffer(bytes_, dtype=torch.float32),
    "array": lambda: torch.frombuffer(numbers, dtype=torch.float32),
    "field": lambda: torch.from_numpy(records["a"]),
    "a view": lambda: torch.from_numpy(buffer)[:1],
}


def contents():
    return buffer.tolist(), bytes(bytes_), records.tolist(), numbers.tolist()


@pytest.mark.parametrize("name", MAKERS)
def test_a_write_is_refused_and_leaves_no_trace(name):
    def program(x):
        made = MAKERS[name]()
        made.add_(x[:1])
        return x * 2

    before = contents()
    with pytest.raises(Unsupported, match="memory") as error:
        torchstone.compile(program, (ones,))
    assert "add_" in error.value.where
    assert contents() == before


def numpy_first(x):
    buffer[0] = 5.0
    return x + shared


def numpy_between(x):
    made = torch.from_numpy(buffer)
    buffer[0] = 5.0
    return x + made


def tensor_first(x):
    shared.add_(x)
    return x * float(buffer[0])


@pytest.mark.parametrize("program", [numpy_first, numpy_between, tensor_first])
def test_one_memory_written_in_one_way_and_read_in_another_is_refused(program):
    before = contents()
    with pytest.raises(Unsupported, match="memory"):
        torchstone.compile(program, (ones,))
    assert contents() == before


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_read_is_what_is_there(name):
    def program(x):
        return x[:1] + MAKERS[name]()

    compiled = torchstone.compile(program, (ones,))
    assert torch.equal(compiled(ones), program(ones))
    for one in (buffer, records["a"]):
        one[0] = 7.0
    bytes_[:] = bytes(torch.ones(2).numpy())
    numbers[0] = 7.0
    try:
        assert torch.equal(compiled(ones), program(ones))
    except GuardError:
        pass
    finally:
        buffer[:], records["a"], bytes_[:], numbers[0] = 0.0, 0.0, bytes(8), 0.0


def test_an_array_of_records_is_written_to_and_guarded() -> None:
    records = np.zeros(2, dtype=[("scale", "f4"), ("count", "i8")])

    def program(x: torch.Tensor) -> torch.Tensor:
        records["count"][0] += 1
        records["scale"][1] = 3.0
        return x * float(records["scale"][1])

    exe = torchstone.compile(program, (ones,))
    assert records.tolist() == [(0.0, 0), (0.0, 0)]
    assert exe(torch.ones(2)).tolist() == [3.0, 3.0] and records.tolist() == [(0.0, 1), (3.0, 0)]
    with pytest.raises(GuardError, match="records holds other numbers"):
        exe(torch.ones(2))
    assert records.tolist() == [(0.0, 1), (3.0, 0)]
