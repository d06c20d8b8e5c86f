"""Which ops of a user's own a program may call: those of modules that the user named, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchstone.conformance.custom import registration
from torchstone.conformance.errors import InputError
from torchstone.conformance.program.call_targets import lookup, name_of, resolve
from torchstone.conformance.program.program import Call, Program, ProgramError, Ref

ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.usefixtures("new_ops")


@pytest.mark.parametrize("name", ["newops::shifted", "newops::shifted.default", "torch.ops.newops.shifted"])
def test_an_op_goes_by_several_names(name):
    op = registration.ask(name)
    assert (op.name, op.target) == ("newops.shifted", "torch.ops.newops.shifted.default")
    assert op.function is torch.ops.newops.shifted.default
    assert name_of(op.function) == op.target


def test_a_function_is_an_op_once_it_is_asked_for():
    assert lookup("tests.new_ops.swish") is None
    registration.ask("tests.new_ops:swish")
    assert resolve("tests.new_ops.swish")(torch.zeros(2)).tolist() == [0, 0]
    assert lookup("tests.new_ops.define") is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("newops::nothing", "does not define it"),
        ("__main__:f", "a module of its own"),
        ("tests.new_ops:nothing", "has no function or module nothing"),
        ("no_such_module:f", "cannot be imported"),
        ("aten::bitwise_and", "it has aten::bitwise_and.Tensor"),
    ],
)
def test_what_is_no_op_is_refused(name, words):
    with pytest.raises(InputError, match=words):
        registration.ask(name)


def test_an_op_is_registered_once():
    with pytest.raises(InputError, match="registered twice"):
        registration.register("newops::shifted")


@pytest.mark.parametrize("target", ["torch.ops.aten._nothing.default", "torch.ops.prims.add.default", "os.system"])
def test_nothing_else_is_let_in(target):
    with pytest.raises(ProgramError, match="forbidden"):
        resolve(target)


def test_an_op_of_ones_own_has_nothing_in_common_with_one_of_pytorch():
    call = Call("torch.ops.newops.shifted.default", (Ref("x"),), {}, "r")
    assert call.operator == "newops::shifted"
    assert Program(("x",), (call,), Ref("r"))(torch.tensor([1, 2])).tolist() == [2, 1]


@pytest.mark.torture
def test_a_case_file_has_no_module_imported(tmp_path):
    """In another process: the file names the module that it needs, and the user has to."""
    code = """
import sys
from torchstone.conformance.custom import registration, source
registration.load_modules(["tests.new_ops"])
source.case("newops.shifted", "float32", 0).save(sys.argv[1])
"""
    read = """
import sys
from torchstone.conformance.custom import registration
from torchstone.conformance.program.case import Case, CaseError
try:
    Case.load(sys.argv[1])
except CaseError as error:
    print(error)
print("tests.new_ops" in sys.modules)
registration.load_modules(["tests.new_ops"])
print(Case.load(sys.argv[1]).program)
"""
    file = tmp_path / "case.safetensors"
    for text in (code, read):
        done = subprocess.run([sys.executable, "-c", text, str(file)], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
    refused, imported, *program = done.stdout.splitlines()
    assert "needs tests.new_ops: give --ops-from tests.new_ops" in refused
    assert imported == "False"
    assert program == ["r0 = torch.ops.newops.shifted.default(x0)", "return r0"]
