"""Programs: what they compute, how they travel as JSON, and what they refuse to reach."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchstone.conformance.errors import InputError
from torchstone.conformance.program.call_targets import name_of, resolve
from torchstone.conformance.program.literals import ProgramError, decode_literal, encode_literal, parse_dtype
from torchstone.conformance.program.program import Call, Program, Ref


def program(*calls: Call, inputs: tuple[str, ...] = ("x0", "x1"), outputs: Any = None) -> Program:
    return Program(inputs, calls, Ref(calls[-1].result) if outputs is None else outputs)


ADD = Call("torch.add", (Ref("x0"), Ref("x1")), {"alpha": 2}, "r0")


def test_a_program_computes_what_its_calls_say() -> None:
    largest = Call("torch.max", (Ref("r0"), 0), {}, "r1")
    cut = Call("torch.Tensor.__getitem__", (Ref("r1", (0,)), (slice(None, None, 2), None)), {}, "r2")
    built = program(ADD, largest, cut, outputs={"cut": Ref("r2"), "where": [Ref("r1", (1,))]})
    x, y = torch.arange(12.0).reshape(3, 4), torch.ones(3, 4)
    out = built(x, y)
    assert torch.equal(out["cut"], (x + 2 * y).max(0).values[::2, None])
    assert out["where"][0].tolist() == [2, 2, 2, 2]


def test_in_place_calls_change_the_argument() -> None:
    built = program(Call("torch.Tensor.mul_", (Ref("x0"), 3), {}, "r0"), inputs=("x0",))
    x = torch.ones(2)
    assert built(x) is x
    assert x.tolist() == [3, 3]


def test_properties_and_overloads_are_targets() -> None:
    transposed = Call("torch.Tensor.mT", (Ref("x0"),), {}, "r0")
    summed = Call("torch.ops.aten.sum.dim_IntList", (Ref("r0"), [1]), {}, "r1")
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(program(transposed, summed, inputs=("x0",))(x), x.sum(0))


def test_tracing_compilers_follow_a_program() -> None:
    built = program(ADD, Call("torch.Tensor.relu", (Ref("r0"),), {}, "r1"), outputs=(Ref("r1"), [Ref("r0")]))
    x, y = torch.randn(3), torch.randn(3)
    compiled = torch.compile(built, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x, y)[0], torch.relu(x + 2 * y))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float8_e5m2, torch.device("cpu"), torch.strided, Ellipsis]),
    st.sampled_from([torch.channels_last, Ref("x0"), Ref("r3", (1, "values"))]),
    st.builds(slice, st.none() | st.integers(), st.none() | st.integers(), st.none() | st.integers(1, 3)),
)
KEYS = st.text(max_size=3) | st.integers()
LITERALS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(KEYS, inner, max_size=2)
    ),
    max_leaves=6,
)


def identical(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(map(identical, left.values(), right.values()))
    if isinstance(left, complex):
        return identical(left.real, right.real) and identical(left.imag, right.imag)
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (left.hex() == right.hex())
    return left == right


@given(LITERALS)
def test_literals_survive_json(value: Any) -> None:
    text = json.dumps(encode_literal(value), allow_nan=False)
    assert identical(decode_literal(json.loads(text)), value)


def test_programs_survive_json() -> None:
    built = program(
        ADD, Call("torch.sum", (Ref("r0"),), {"dtype": torch.float64}, "r1"), outputs=(Ref("r1"), Ref("x0"))
    )
    again = Program.from_json(built.to_json())
    assert again == built
    assert hash(again) == hash(built)
    assert again.to_json() == built.to_json()


def test_a_literal_that_cannot_be_written_says_its_type() -> None:
    with pytest.raises(ProgramError, match=r"a builtins\.object cannot be written"):
        encode_literal([object()])


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.eval",
        "torch.load",
        "torch.save",
        "torch.from_file",
        "torch.hub.load",
        "torch.os.system",
        "torch.utils.cpp_extension.load",
        "torch.ops.load_library",
        "torch.ops.aten.save",
        "torch.ops.aten.from_file",
        "torch.ops.aten.add.__init__",
        "torch.ops.aten.__class__",
        "torch.ops.prim.print",
        "torch.Tensor.__class__",
        "torch.Tensor.__reduce_ex__",
        "torch.Tensor.__init__",
        "torch.Tensor.apply_",
        "torch.Tensor.register_hook",
        "torch.Tensor.numpy",
        "torch.Tensor.set_",
        "torch.Tensor.share_memory_",
        "torch.Tensor.add.__call__",
        "torch.nn.functional.importlib",
        "torch.nn.functional.warnings.warn",
        "torch.nn.functional.__builtins__",
        "torch.nn.Module",
        "torch.jit.load",
        "torch.linalg.torch",
        "torch._C._jit_pass_inline",
        "torch",
        "torch.",
        "",
        "add",
    ],
)
def test_names_outside_the_allowlist_are_refused(target: str) -> None:
    with pytest.raises(ProgramError, match="unknown or forbidden target"):
        resolve(target)


def test_a_misspelt_target_gets_a_suggestion() -> None:
    with pytest.raises(ProgramError, match=r'did you mean "torch\.nn\.functional\.softmax"'):
        resolve("torch.nn.functional.sofmax")


@pytest.mark.parametrize(
    "function",
    [
        torch.add,
        torch.Tensor.add_,
        torch.nn.functional.softmax,
        torch.linalg.norm,
        torch.special.erf,
        torch.fft.rfft,
        torch.ops.aten.add.Tensor,
        torch.ops.aten._safe_softmax,
    ],
)
def test_names_and_functions_go_both_ways(function: Any) -> None:
    name = name_of(function)
    assert name is not None
    assert resolve(name) is function


def test_python_functions_have_no_name() -> None:
    assert name_of(lambda x: x) is None
    assert name_of(print) is None


GOOD = program(ADD).to_data()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": "x0"}, "inputs must be a list"),
        ({"inputs": ["x0", 1]}, "an input name must be a string"),
        ({"inputs": ["x0", "x0"]}, "duplicate input"),
        ({"inputs": ["x0"]}, "'x1' is used before it is defined"),
        ({"inputs": ["x0", "x1", "__class__"]}, "not a usable name"),
        ({"calls": [{**GOOD["calls"][0], "target": "os.system"}]}, "unknown or forbidden target 'os.system'"),
        ({"calls": [{**GOOD["calls"][0], "result": "x0"}]}, "'x0' is defined twice"),
        ({"calls": [{**GOOD["calls"][0], "args": [{"eval": "1"}]}]}, "unknown literal tag 'eval'"),
        ({"calls": [{**GOOD["calls"][0], "args": [{"dtype": "flot32"}]}]}, "unknown dtype 'flot32'.*float32"),
        ({"calls": [{**GOOD["calls"][0], "args": [{"device": "moon"}]}]}, "unknown device 'moon'"),
        ({"calls": [{**GOOD["calls"][0], "kwargs": []}]}, "kwargs must be an object"),
        ({"calls": [{"target": "torch.add"}]}, "a call must be an object with the keys"),
        ({"outputs": 3}, "outputs hold 3"),
        ({"outputs": {"ref": ["r7"]}}, "output 'r7' is not defined"),
        ({"outputs": {"ref": ["r0", 1.5]}}, "malformed reference"),
        ({"extra": 1}, "a program must be an object"),
    ],
)
def test_damaged_programs_are_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError, match=message) as caught:
        Program.from_data({**GOOD, **change})
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, InputError)


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    with pytest.raises(ProgramError):
        Program.from_json('{"inputs":[],"calls":[],"outputs":' + "[" * 50_000 + "]" * 50_000 + "}")


def test_wrong_number_of_tensors() -> None:
    with pytest.raises(TypeError, match="takes 2 tensors, got 1"):
        program(ADD)(torch.ones(1))


def test_unknown_dtype_names() -> None:
    assert parse_dtype("bfloat16") is torch.bfloat16
    with pytest.raises(ProgramError, match='did you mean "bfloat16"'):
        parse_dtype("bfloat")
