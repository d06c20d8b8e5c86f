"""What an object holds is compared, callables and absent names too, at every call: also at one after many that were."""

import collections
import dataclasses
import enum
import math
import operator
import os
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.compiler.capture.state.test_state import inputs
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile

# A program, the change after which a call has to be refused, and the message.
Built = tuple[Callable[..., Any], Callable[[], Any], str]
GUARDED: dict[str, Callable[[], Built]] = {}
SCALE = 2.0


def guarded(build: Callable[[], Built]) -> Callable[[], Built]:
    """A call has to be right, and refused after the change."""
    GUARDED[build.__name__] = build
    return build


def _held(one: Any, other: Any, match: str) -> Built:
    held = types.SimpleNamespace(value=one)
    return (lambda x: held.value(x)), (lambda: setattr(held, "value", other)), match


@guarded
def a_function_of_the_library() -> Built:
    return _held(F.relu, F.gelu, r"held\.value was relu .* is gelu")


@guarded
def a_builtin_function() -> Built:
    return _held(torch.neg, operator.abs, r"held\.value was neg .* is abs")


@guarded
def a_method_of_an_object() -> Built:
    class Net(nn.Module):
        def fast(self, x):
            return x * 2

        def slow(self, x):
            return x * 3

    net = Net()
    return _held(net.fast, net.slow, "is another function")


@guarded
def a_method_of_a_list() -> Built:
    rows = [1.0, 2.0]
    held = types.SimpleNamespace(find=rows.count)
    return (lambda x: x * held.find(2.0)), (lambda: setattr(held, "find", rows.index)), r"held\.find was 'count'"


@guarded
def a_class_of_numbers() -> Built:
    held = types.SimpleNamespace(kind=int)
    return (lambda x: x * held.kind(2.5)), (lambda: setattr(held, "kind", float)), r"was int .* is float"


@guarded
def a_class_of_the_program() -> Built:
    class One:
        pass

    class Two:
        pass

    held = types.SimpleNamespace(kind=One)
    return (lambda x: x if held.kind is One else -x), (lambda: setattr(held, "kind", Two)), r"held\.kind"


@guarded
def a_module() -> Built:
    held = types.SimpleNamespace(backend=torch)
    return (lambda x: held.backend.exp(x)), (lambda: setattr(held, "backend", torch.special)), r"held\.backend"


@guarded
def a_function_of_a_module(monkeypatch: Any = None) -> Built:
    library = types.ModuleType("library")
    library.scale = math.sqrt  # type: ignore[attr-defined]
    return (lambda x: x * library.scale(4.0)), (lambda: setattr(library, "scale", math.exp)), r"library\.scale"  # type: ignore[attr-defined]


@guarded
def a_default_argument() -> Built:
    def step(x, act=torch.relu):
        return act(x)

    return (lambda x: step(x)), (lambda: setattr(step, "__defaults__", (torch.neg,))), r"step"


@guarded
def the_forward_of_a_module() -> Built:
    class Net(nn.Module):
        def forward(self, x):
            return x * 2

        def other(self, x):
            return x * 3

    net = Net()
    net.forward = net.forward  # type: ignore[method-assign]
    return net, lambda: setattr(net, "forward", net.other), r"Net\.forward"


@guarded
def an_object_that_is_in_two_places() -> Built:
    inner = {"scale": 2.0}
    outer = {"inner": inner}

    def program(x):
        return x * outer["inner"]["scale"] + inner["scale"]

    return program, lambda: outer.update(inner={"scale": 5.0}), r"outer\['inner'\] and .* were one object"


@guarded
def an_attribute_that_a_class_inherits() -> Built:
    class Base(nn.Module):
        scale = 2.0

        def forward(self, x):
            return x * self.scale

    class Derived(Base):
        pass

    return Derived(), lambda: setattr(Derived, "scale", 3.0), r"Derived\.scale was not there"


@guarded
def an_attribute_that_a_class_has_not() -> Built:
    class Holder:
        pass

    holder = Holder()
    return (lambda x: x * hasattr(holder, "fast")), lambda: setattr(Holder, "fast", 1), r"Holder\.fast was not there"


@guarded
def a_special_method_that_a_class_has_not() -> Built:
    class Holder:
        pass

    holder = Holder()
    return (lambda x: x if holder else -x), lambda: setattr(Holder, "__bool__", lambda _: False), "was not there"


@guarded
def a_global_that_is_not_there() -> Built:
    def program(x):
        try:
            return x * ABSENT  # type: ignore[name-defined]
        except NameError:
            return x

    return program, lambda: globals().update(ABSENT=2.0), "the global ABSENT was not there"


@guarded
def a_builtin_that_is_shadowed() -> Built:
    rows = [1, 2]
    return (lambda x: x * len(rows)), lambda: globals().update(len=lambda _: 7), "the global len was not there"


@guarded
def a_variable_of_the_environment() -> Built:
    return (lambda x: x * float(os.environ.get("ABSENT", "2"))), lambda: os.environ.update(ABSENT="5"), "ABSENT"


@guarded
def a_variable_whose_name_is_computed() -> Built:
    def program(x):
        name = "ABS"
        return x * float(os.environ.get(f"{name}ENT", "2"))

    return program, lambda: os.environ.update(ABSENT="5"), "ABSENT"


@guarded
def a_global_of_a_method_of_a_dict() -> Built:
    class Holder(dict):
        def scale(self):
            return SCALE * self["k"]

    holder = Holder(k=1.0)
    return (lambda x: x * holder.scale()), lambda: globals().update(SCALE=7.0), r"the global SCALE was 2\.0"


@guarded
def a_global_of_a_method_of_a_named_tuple() -> Built:
    class Holder(typing.NamedTuple):
        k: float

        def scale(self):
            return SCALE * self.k

    holder = Holder(1.0)
    return (lambda x: x * holder.scale()), lambda: globals().update(SCALE=7.0), r"the global SCALE was 2\.0"


@guarded
def a_global_of_a_method_of_an_enum() -> Built:
    class Mode(enum.Enum):
        ONE = 1

        def scale(self):
            return SCALE * self.value

    mode = Mode.ONE
    return (lambda x: x * mode.scale()), lambda: globals().update(SCALE=7.0), r"the global SCALE was 2\.0"


@guarded
def what_a_weak_reference_leads_to() -> Built:
    parent = nn.Module()
    parent.scale = 2.0
    reference = weakref.ref(parent)
    return (lambda x: x * reference().scale), lambda: setattr(parent, "scale", 5.0), r"scale was 2\.0"


@guarded
def what_an_exception_has() -> Built:
    held = types.SimpleNamespace(error=ValueError(2.0))
    return (lambda x: x * held.error.args[0]), lambda: setattr(held.error, "args", (3.0,)), r"args\[0\] was 2\.0"


@guarded
def a_string_with_attributes() -> Built:
    class Name(str):
        scale: float

    name = Name("name")
    name.scale = 2.0
    return (lambda x: x * name.scale), lambda: setattr(name, "scale", 3.0), r"scale was 2\.0"


@guarded
def what_a_dict_makes() -> Built:
    held: Any = collections.defaultdict(int)
    return (lambda x: x * (held.default_factory() + 1.5)), lambda: setattr(held, "default_factory", list), "factory"


@guarded
def the_length_of_a_deque() -> Built:
    held = types.SimpleNamespace(ring=collections.deque([1.0], maxlen=2))
    one = collections.deque([1.0], maxlen=1)
    return (lambda x: x * held.ring.maxlen), lambda: setattr(held, "ring", one), r"ring\.maxlen was 2"


@guarded
def the_class_of_an_object() -> Built:
    class One:
        scale = 1.0

    class Two:
        scale = 2.0

    held = One()
    return (lambda x: x * held.scale), lambda: setattr(held, "__class__", Two), "was a One"


@guarded
def a_slot_that_is_empty() -> Built:
    class Holder:
        __slots__ = ("fast",)

    holder = Holder()
    return (lambda x: x * hasattr(holder, "fast")), lambda: setattr(holder, "fast", 1), "fast was not there"


@guarded
def the_attributes_of_an_empty_dict() -> Built:
    class Holder(dict):
        pass

    holder = Holder()
    holder.scale = 2.0  # type: ignore[attr-defined]
    return (lambda x: x * holder.scale), lambda: setattr(holder, "__dict__", {"scale": 3.0}), r"was 2\.0"  # type: ignore[attr-defined]


@guarded
def attributes_that_the_library_reads() -> Built:
    @dataclasses.dataclass
    class Record:
        one: float = 1.0
        two: float = 2.0

    record = Record()
    return (lambda x: x * sum(dataclasses.asdict(record).values())), lambda: setattr(record, "two", 5.0), "two was 2"


@pytest.mark.parametrize("called", [0, 2])
@pytest.mark.parametrize("name", GUARDED)
def test_what_is_held_is_guarded(name: str, called: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for absent in ("ABSENT", "len"):  # gone again afterwards, whatever the change makes of them
        monkeypatch.setitem(globals(), absent, None)
        monkeypatch.delitem(globals(), absent)
    monkeypatch.setitem(globals(), "SCALE", SCALE)
    monkeypatch.setenv("ABSENT", "")
    monkeypatch.delenv("ABSENT")
    program, change, match = GUARDED[name]()
    exe = compile(program, (inputs(0),), "evaluator")
    for _ in range(called):
        torch.testing.assert_close(exe(inputs(1)), program(inputs(1)))
    change()
    with pytest.raises(GuardError, match=match):
        exe(inputs(0))


def test_a_program_that_sets_the_environment_is_refused_at_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABSENT", raising=False)

    def program(x):
        os.environ["ABSENT"] = "1"
        return x

    with pytest.raises(Unsupported, match=r'sets an environment variable(.|\n)*os\.environ\["ABSENT"\] = "1"'):
        compile(program, (inputs(0),), "evaluator")
    assert "ABSENT" not in os.environ


def test_other_variables_of_the_environment_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    exe = compile(lambda x: x * float(os.environ.get("ABSENT", "2")), (inputs(0),), "evaluator")
    monkeypatch.setenv("OTHER", "1")
    torch.testing.assert_close(exe(inputs(0)), inputs(0) * 2)


def test_a_set_that_is_left_behind_and_returned_is_one_set() -> None:
    class Holder:
        seen: Any = None

    holder = Holder()

    def program(x):
        holder.seen = {1}
        return holder.seen

    exe = compile(program, (inputs(0),), "evaluator")
    first = exe(inputs(0))
    assert first is holder.seen
    assert exe(inputs(0)) is not first
