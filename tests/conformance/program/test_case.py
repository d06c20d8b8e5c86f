"""Cases: every layout and bit survives the file; damaged and hostile files give one clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchstone.conformance.program.case import Case, CaseError
from torchstone.conformance.program.program import Call, Program, Ref


def bits(tensor: Tensor) -> bytes:
    return bytes(tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).tolist())


def case_of(*tensors: Tensor) -> Case:
    names = tuple(f"x{index}" for index in range(len(tensors)))
    program = Program(names, (), tuple(Ref(name) for name in names))
    return Case(program, dict(zip(names, tensors, strict=True)), "test", "identity", "float32", index=7, tags=("a",))


COMPLEX = torch.tensor([1 + 2j, 3 - 4j])
TENSORS = {
    "0-d": torch.tensor(1.5),
    "empty": torch.empty(3, 0, 2),
    "more dims than most ops take": torch.randn([1] * 70),
    "negative zero and subnormal": torch.tensor([-0.0, 1e-45, float("nan"), float("-inf")]),
    "nan payload": torch.tensor([0x7FC12345, -1], dtype=torch.int32).view(torch.float32),
    "transposed": torch.randn(3, 4).t(),
    "strided with offset": torch.randn(8, 6)[1::2, 2:5],
    "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 5),
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "lazily conjugated": COMPLEX.conj(),
    "lazily negated": COMPLEX.conj().imag,
    "bool": torch.tensor([True, False]),
    "complex32": torch.tensor([1 + 2j], dtype=torch.complex64).to(torch.complex64),
    **{
        str(dtype): torch.tensor([0, 1, 2]).to(dtype)
        for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.uint16, torch.uint64)
    },
    "float8": torch.tensor([0.5, 2.0]).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("name", TENSORS)
def test_every_layout_and_bit_survives(name: str) -> None:
    tensor = TENSORS[name]
    case = case_of(tensor)
    for again in (Case.from_bytes(case.to_bytes()).args[0], case.fresh_args()[0]):
        assert (again.dtype, again.shape, again.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
        assert again.storage_offset() == tensor.storage_offset()
        assert (again.is_conj(), again.is_neg()) == (tensor.is_conj(), tensor.is_neg())
        assert bits(again) == bits(tensor)


def test_zeros_without_memory_have_some_in_a_case() -> None:
    zeros = [torch._efficientzerotensor((size, 3), dtype=torch.complex64).conj().t() for size in (2, 4, 5, 6)]
    case = case_of(*zeros)
    for again in (Case.from_bytes(case.to_bytes()).args, case.fresh_args()):
        assert [(x.shape, x.stride(), x.dtype) for x in again] == [(x.shape, x.stride(), x.dtype) for x in zeros]
        assert not any(x.any() for x in again)
        assert len({x.untyped_storage().data_ptr() for x in again}) == len(zeros)


def test_labels_survive_and_the_id_tells_them() -> None:
    case = Case.from_bytes(case_of(torch.ones(2)).replace(variant="non-contiguous").to_bytes())
    assert case.id == "test:identity:float32:7:non-contiguous"
    assert case.tags == ("a",)
    assert case_of(torch.ones(1)).id == "test:identity:float32:7"


def test_aliases_stay_aliases_and_copies_stay_apart() -> None:
    base = torch.arange(6.0)
    case = Case.from_bytes(case_of(base[:4], base[2:], base.clone()).to_bytes())
    first, second, third = case.fresh_args()
    first[2] = 100
    assert second[0] == 100
    assert third[2] == 2
    assert case.args[0][2] == 2


def test_what_lies_outside_the_view_is_kept() -> None:
    base = torch.arange(10.0)
    (again,) = Case.from_bytes(case_of(base[4:6]).to_bytes()).fresh_args()
    assert again.as_strided((10,), (1,), 0).tolist() == base.tolist()


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.eye(2).to_sparse(), "sparse_coo"),
        (torch.eye(2).to_mkldnn(), "_mkldnn"),
        (torch.empty(2, device="meta"), "on meta"),
    ],
)
def test_tensors_a_case_cannot_hold(tensor: Tensor, message: str) -> None:
    with pytest.raises(CaseError, match=message):
        case_of(tensor).to_bytes()


def test_inputs_must_be_the_programs() -> None:
    with pytest.raises(CaseError, match=r"the program takes \(x\), given \(y\)"):
        Case(Program(("x",), (), Ref("x")), {"y": torch.ones(1)}, "test", "identity", "float32")


ADD = Program(("x0", "x1"), (Call("torch.add", (Ref("x0"), Ref("x1")), {}, "r0"),), Ref("r0"))
CASE = Case(ADD, {"x0": torch.randn(3, 2).t(), "x1": torch.randn(2, 3)}, "test", "add", "float32")
BYTES = CASE.to_bytes()


def with_header(change: Any) -> bytes:
    """The case's file with its metadata changed by a function."""
    length = int.from_bytes(BYTES[:8], "little")
    outer = json.loads(BYTES[8 : 8 + length])
    header = json.loads(outer["__metadata__"]["torchstone"])
    changed = change(header)
    outer["__metadata__"]["torchstone"] = json.dumps(header if changed is None else changed)
    text = json.dumps(outer).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + BYTES[8 + length :]


def edit(*path: Any, to: Any) -> Any:
    def change(header: Any) -> None:
        for step in path[:-1]:
            header = header[step]
        header[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit("schema", to=99), "newer torchstone .schema 99.*upgrade"),
        (edit("schema", to="1"), "schema '1'"),
        (edit("schema", to=0), "schema 0"),
        (edit("op", to=3), "wrong type"),
        (edit("index", to=True), "wrong type"),
        (edit("tags", to=[1]), "wrong type"),
        (edit("program", "calls", 0, "target", to="torch.hub.load"), "unknown or forbidden target"),
        (edit("program", "calls", 0, "target", to="torch.Tensor.__reduce__"), "unknown or forbidden target"),
        (edit("program", "calls", 0, "args", to=[{"pickle": "gASV"}]), "unknown literal tag 'pickle'"),
        (edit("program", to="x"), "a program must be an object"),
        (edit("inputs", to={}), "no tensor for input 'x0'"),
        (edit("inputs", to=[]), "inputs must be an object"),
        (edit("inputs", "x0", "dtype", to="flaot32"), "unknown dtype 'flaot32'"),
        (edit("inputs", "x0", "storage", to="s9"), "'s9', which is not in the file"),
        (edit("inputs", "x0", "shape", to=[2, 30]), r"shape \[2, 30\].*leave a storage of 6"),
        (edit("inputs", "x0", "stride", to=[1, 1000]), "leave a storage of 6"),
        (edit("inputs", "x0", "offset", to=5), "leave a storage of 6"),
        (edit("inputs", "x0", "offset", to=-1), "not negative"),
        (edit("inputs", "x0", "shape", to=[2, 2**70]), "do not agree"),
        (edit("inputs", "x0", "shape", to=[2**40, 2**40]), "leave a storage"),
        (edit("inputs", "x0", "shape", to=[2.0, 3.0]), "whole numbers"),
        (edit("inputs", "x0", "shape", to=[2]), "do not agree"),
        (edit("inputs", "x0", "shape", to=[1] * 2000), "has 2000 dims; a case has 1024 at most"),
        (edit("inputs", "x0", to=None), "'x0' must be an object"),
        (lambda header: [1], "not the JSON of a case"),
        (lambda header: {"schema": 1}, "field 'source' is missing"),
    ],
)
def test_hostile_headers_give_one_clear_error(change: Any, message: str) -> None:
    with pytest.raises(CaseError, match=message) as caught:
        Case.from_bytes(with_header(change))
    assert "\n" not in str(caught.value)


def test_an_unchanged_header_is_accepted() -> None:
    assert Case.from_bytes(with_header(lambda header: None)).program == ADD


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"not a case at all", b"\xff" * 64, b"PK\x03\x04" + b"\0" * 60])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(CaseError, match="not a case file"):
        Case.from_bytes(data)


@given(st.integers(0, len(BYTES) - 1))
def test_truncated_files_are_refused(length: int) -> None:
    with pytest.raises(CaseError):
        Case.from_bytes(BYTES[:length])


@given(st.integers(0, len(BYTES) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_an_error_or_another_case(position: int, flip: int) -> None:
    data = bytearray(BYTES)
    data[position] ^= flip
    try:
        Case.from_bytes(bytes(data)).fresh_args()
    except CaseError as error:
        assert "\n" not in str(error)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "one.case"
    CASE.save(path)
    assert Case.load(path).to_bytes() == BYTES
    with pytest.raises(CaseError, match=r"missing\.case: No such file"):
        Case.load(tmp_path / "missing.case")
    path.write_bytes(BYTES[:100])
    with pytest.raises(CaseError, match=r"one\.case: "):
        Case.load(path)
