"""The script of a case: whatever the case and its verdict say, it has the statements that it should, and no other."""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import runpy
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from torchstone.conformance.backends import backend_names
from torchstone.conformance.escape import log_lines, visible
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case, CaseError
from torchstone.conformance.program.program import Call, Program, ProgramError, Ref, is_name
from torchstone.conformance.repro.script import RESERVED, render_script

from .corpus import TEXTS, ran
from .test_escape import commands

PLAIN = Case(
    Program(("x",), (Call("torch.div", (Ref("x"), 2.0), {"rounding_mode": "floor"}, "v0"),), [Ref("v0")]),
    {"x": torch.tensor([1.0, 2.0])}, "corpus", "div", "float32",
)  # fmt: skip
BACKENDS = (None, "linalg", "openvino", "module:backend")


def shape(script: str) -> str:
    """The script's statements without the texts in it."""
    tree = ast.parse(script)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


def verdict(text: str, outcome: Outcome = Outcome.MISMATCH) -> Verdict:
    return Verdict(text, text, text, text, text, text, Stage.RUN, outcome, "value", text, {text: text})


@pytest.mark.few(15)
@pytest.mark.parametrize("name", TEXTS)
def test_labels_backends_and_messages(name: str, tmp_path: Path) -> None:
    text = TEXTS[name]
    case = dataclasses.replace(PLAIN, source=text, op=text, dtype=text, variant=text)
    for backend, outcome in zip(BACKENDS, (None, Outcome.CRASH, Outcome.MISMATCH, None), strict=True):
        told = None if outcome is None else verdict(text, outcome)
        wanted = shape(render_script(PLAIN, backend, told and verdict("x", outcome or Outcome.MISMATCH)))
        assert shape(render_script(case, backend, told)) == wanted
    hostile = shape(render_script(case, text, verdict(text)))
    assert hostile == shape(render_script(case, "other:backend", verdict("x")))
    path = tmp_path / "script.py"
    path.write_text(render_script(case, None, verdict(text)), encoding="utf-8")
    runpy.run_path(str(path))
    assert not ran()


WORST = {
    "where": "output[0]", "index": [0], "expected": 1.0, "actual": 2.0, "float64": 1.0, "bound": 0.5, "ulps": 3.0,
    "dtype": "float32", "note": "x",
}  # fmt: skip


def told_of_worst(**changes: object) -> str:
    """The shape of the script of a verdict that says this of its worst element."""
    asked = dataclasses.replace(verdict("x"), stage=Stage.COMPARE, evidence=WORST | changes)
    return shape(render_script(PLAIN, "inductor", asked))


@functools.cache
def plain_of_worst() -> set[str]:
    """The shapes of scripts of verdicts that say all of their worst element, or leave one thing out."""
    return {told_of_worst(), *(told_of_worst(**{key: None}) for key in WORST)}


@pytest.mark.few(22)
@pytest.mark.parametrize("name", TEXTS)
def test_what_a_verdict_says_of_its_worst_element(name: str) -> None:
    """A worker may say anything there: it is a number of a script, or it is not in it."""
    text = TEXTS[name]
    hostile = dict.fromkeys(WORST, text) | {"where": f"output['{text}']", "index": [text]}
    assert {told_of_worst(**{key: value}) for key, value in hostile.items()} <= plain_of_worst()


@pytest.mark.parametrize("name", TEXTS)
def test_literals(name: str, tmp_path: Path) -> None:
    """Texts in arguments, keys and keywords are the same texts in the script."""
    text = TEXTS[name]
    values = {"a": [text, (text,), {text: text}, {"k": text}], text: text}
    program = Program(("x",), (Call("torch.add", (Ref("x"), 1), values, "v0"),), Ref("v0"))
    script = render_script(dataclasses.replace(PLAIN, program=program))
    calls = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Call)]
    (call,) = [node for node in calls if ast.unparse(node.func) == "torch.add"]
    given: dict[str, object] = {}
    for word in call.keywords:
        given |= {word.arg: ast.literal_eval(word.value)} if word.arg else ast.literal_eval(word.value)
    assert given == values


def script_of(*, backend: str = "linalg", **program: object) -> str:
    """The script, as `torchstone replay --script` prints it, of a case from a file with such a program."""
    case = read(program={"inputs": ["x"], "calls": [NEG], "outputs": {"ref": ["v0"]}} | program)
    script = render_script(case, backend)
    assert log_lines(script) == script and not commands(script), "to be printed as it is"
    return script


NEG = {"target": "torch.neg", "args": [{"ref": ["x"]}], "kwargs": {}, "result": "v0"}


@pytest.mark.few(13)
@pytest.mark.parametrize("name", TEXTS)
def test_literals_names_of_arguments_keys_and_paths(name: str, tmp_path: Path) -> None:
    """Each text is where a file may have one: the script holds it, word for word, as a text and as nothing else."""
    text = TEXTS[name][:400]
    keyed = {"dict": [[text, 1], ["list", [text, {"tuple": [text]}]]]}
    for plain, hostile in (
        ({"args": [{"ref": ["x"]}, "y", keyed]}, {"args": [{"ref": ["x"]}, text, keyed]}),
        ({"kwargs": {"y y": "y"}}, {"kwargs": {text: text}}),
        ({"args": [{"ref": ["x", "y", 0]}]}, {"args": [{"ref": ["x", text, 0]}]}),
        ({"args": [{"slice": ["y", None, None]}]}, {"args": [{"slice": [text, None, None]}]}),
    ):
        if "kwargs" in hostile and is_name(text):
            continue
        found = script_of(calls=[NEG | hostile])
        assert shape(found) == shape(script_of(calls=[NEG | plain]))
        assert text in [node.value for node in ast.walk(ast.parse(found)) if isinstance(node, ast.Constant)]
    outputs = {"dict": [[text, {"ref": ["v0"]}]]}
    path = tmp_path / "script.py"
    path.write_text(
        render_script(read(program={"inputs": ["x"], "calls": [NEG], "outputs": outputs})), encoding="utf-8"
    )
    assert list(runpy.run_path(str(path))["expected"]) == [text] and not ran()


@pytest.mark.parametrize("name", TEXTS)
def test_names_of_tensors_and_storages(name: str) -> None:
    """A file names its inputs, the memory they lie in and its dtype; a script has none of these but a plain name."""
    text = TEXTS[name]
    view = {"storage": "s0", "dtype": "float32", "shape": [2], "stride": [1], "offset": 0, "conj": False, "neg": False}
    for inputs in (
        {text: view},
        {"x": view | {"storage": text}},
        {"x": view | {"dtype": text}},
        {"x": view | {text: 1}},
    ):
        try:
            case = read(inputs=inputs)
        except CaseError as error:
            assert str(error).isprintable()
        else:
            assert shape(render_script(case)) == shape(render_script(PLAIN))


def read(**changes: object) -> Case:
    """A case from a file with these fields changed."""
    data = PLAIN.to_bytes()
    length = int.from_bytes(data[:8], "little")
    outer = json.loads(data[8 : 8 + length])
    inner = json.loads(outer["__metadata__"]["torchstone"]) | changes
    outer["__metadata__"]["torchstone"] = json.dumps(inner)
    head = json.dumps(outer).encode()
    head += b" " * (-len(head) % 8)
    return Case.from_bytes(len(head).to_bytes(8, "little") + head + data[8 + length :])


@pytest.mark.parametrize("name", TEXTS)
def test_labels_are_refused_or_safe(name: str) -> None:
    text = TEXTS[name]
    for label in ("source", "op", "dtype", "variant", "tags"):
        try:
            case = read(**{label: [text] if label == "tags" else text})
        except CaseError as error:
            assert str(error).isprintable() and len(str(error)) < 400 and label.rstrip("s") in str(error)
            assert visible(text) != text or len(text) > 500
        else:
            assert visible(text) == text and (text in case.id or text in case.tags)


def test_control_characters_in_a_label_are_named() -> None:
    with pytest.raises(CaseError, match=r"^damaged case: op has control characters: 'a\\x1b\[31m'$"):
        read(op="a\x1b[31m")
    with pytest.raises(CaseError, match=r"variant has control characters: '\\u202ea'"):
        read(variant="\u202ea")
    with pytest.raises(CaseError, match="op has 501 characters; at most 500"):
        read(op="x" * 501)
    assert read(op="é 漢字").op == "é 漢字"


@pytest.mark.few(42)
@pytest.mark.parametrize("name", [*TEXTS.values(), "class", "None", "ﬁ", "ｔｏｒｃｈ", "__debug__", "__class__", "x y"])
def test_names_that_are_none(name: str) -> None:
    call = {"target": "torch.neg", "args": [{"ref": ["x"]}], "kwargs": {}, "result": "v0"}
    good = {"inputs": ["x"], "calls": [call], "outputs": {"ref": ["v0"]}}
    Program.from_data(good)
    for bad in (
        {"inputs": [name], "calls": [call | {"args": [{"ref": [name]}]}]},
        {"calls": [call | {"result": name}], "outputs": {"ref": [name]}},
        {"calls": [call | {"target": name}]},
        {"calls": [call | {"target": f"torch.{name}"}]},
        {"calls": [call | {"target": f"torch.ops.aten.neg.{name}"}]},
        {"calls": [call | {"args": [{"dtype": name}]}]},
        {"calls": [call | {"args": [{"device": name}]}]},
    ):
        with pytest.raises(ProgramError) as found:
            Program.from_data(good | bad)
        assert len(str(found.value)) < 70_000


@pytest.mark.parametrize("name", [*sorted(RESERVED), "s0", "program", "inputs", "print", "match", "expected"])
def test_names_that_mean_something_in_a_script(name: str, tmp_path: Path) -> None:
    """An input that is called as a module the script uses, or as a storage in it, hides nothing."""
    base = torch.arange(200.0) * 0.1
    calls = (
        Call("torch.add", (Ref(name), Ref("other")), {}, "v0"),
        Call("torch.div", (Ref("v0"), complex(1, 2)), {}, "v1"),
        Call("torch.Tensor.__getitem__", (Ref("v1"), slice(None, 3)), {}, "v2"),
        Call("torch.mul", (Ref("v2"), float("inf")), {}, "v3"),
    )
    inputs = {name: base[:100], "other": base[100:], "s1": torch.ones(100), "torch_": torch.rand(3, 70)}
    case = Case(Program(tuple(inputs), calls, Ref("v3")), inputs, "corpus", "add", "float32")
    path = tmp_path / "script.py"
    path.write_text(render_script(case), encoding="utf-8")
    found = runpy.run_path(str(path))
    for ours, theirs in zip(found["inputs"](), case.args, strict=True):
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()
    assert torch.equal(found["expected"].nan_to_num(), case.program(*case.fresh_args()).nan_to_num())


def test_overloads_that_python_keeps_the_names_of() -> None:
    call = Call("torch.ops.aten.random.from", (Ref("x"), 0, 5), {}, "v0")
    case = dataclasses.replace(PLAIN, program=Program(("x",), (call,), Ref("v0")))
    assert 'getattr(torch.ops.aten.random, "from")(x, 0, 5)' in render_script(case)
    ast.parse(render_script(case, "eager"))


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(), max_size=60), message=st.text("\"\\'\n\r#\x0c \0", max_size=200))
def test_any_text(text: str, message: str) -> None:
    assume(text not in backend_names())  # whose scripts say how it is called
    case = dataclasses.replace(PLAIN, op=text)
    told = dataclasses.replace(verdict(text), message=message)
    assert shape(render_script(case, text, told)) == shape(render_script(PLAIN, "other:backend", verdict("x")))
