"""Code that a program reaches past plain functions: descriptors, weak references, and classes of whatever base."""

import collections
import enum
import functools
import sys
import typing
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.compiler.capture.state.compare import difference, picture
from tests.compiler.capture.state.test_state import inputs
from torchstone.compiler.capture.state import kinds
from torchstone.compiler.capture.state.heap import Heap
from torchstone.compiler.driver import compile

# A program that counts its calls, what it counts with, and how often the count is written in a call.
Built = tuple[Callable[..., Any], Callable[[], Any]]
COUNTING: dict[str, Callable[[], Built]] = {}
N = 0


def counting(build: Callable[[], Built]) -> Callable[[], Built]:
    """Three calls have to be right, and compiling to count nothing."""
    COUNTING[build.__name__] = build
    return build


@counting
def a_method_that_is_an_object() -> Built:
    class Counted:
        def __init__(self, function):
            self.function, self.n = function, 0

        def __call__(self, *args):
            self.n += 1
            return self.function(*args)

        def __get__(self, obj, cls=None):
            return functools.partial(self, obj)

    class Net(nn.Module):
        @Counted
        def step(self, x):
            return x * 2

        def forward(self, x):
            return self.step(x)

    return Net(), lambda: vars(Net)["step"].n


@counting
def a_descriptor() -> Built:
    class Field:
        def __init__(self):
            self.value = 1

        def __get__(self, obj, cls=None):
            return self.value

        def __set__(self, obj, value):
            self.value = value

    class Holder:
        n = Field()

    holder = Holder()

    def program(x):
        holder.n = holder.n + 1
        return x * holder.n

    return program, lambda: holder.n


@counting
def a_property_of_a_metaclass() -> Built:
    class Meta(type):
        count = 0

        @property
        def n(cls):
            Meta.count += 1
            return Meta.count

    class Holder(metaclass=Meta):
        pass

    return lambda x: x * Holder.n, lambda: Meta.count


@counting
def a_method_of_a_dict() -> Built:
    class Counter(dict):
        def step(self):
            self["n"] += 1
            return self["n"]

    counter = Counter(n=0)
    return lambda x: x * counter.step(), lambda: counter["n"]


@counting
def slots_of_a_dict() -> Built:
    class Counter(dict):
        __slots__ = ("n",)

    counter = Counter()
    counter.n = 0

    def program(x):
        counter.n += 1
        return x * counter.n

    return program, lambda: counter.n


@counting
def what_a_defaultdict_makes() -> Built:
    made = [0]

    def make():
        made[0] += 1
        return 2

    def program(x):
        return x * collections.defaultdict(make)["key"]

    return program, lambda: made


@counting
def a_method_of_a_named_tuple() -> Built:
    made = [0]

    class Pair(typing.NamedTuple):
        scale: float

        def step(self):
            made[0] += 1
            return self.scale

    pair = Pair(2.0)
    return lambda x: x * pair.step(), lambda: made


@counting
def a_method_of_an_enum() -> Built:
    made = [0]

    class Mode(enum.Enum):
        DOUBLE = 2

        def scale(self):
            made[0] += 1
            return self.value

    mode = Mode.DOUBLE
    return lambda x: x * mode.scale(), lambda: made


@counting
def attributes_of_a_string() -> Built:
    class Name(str):
        n: int

    name = Name("name")
    name.n = 0

    def program(x):
        name.n += 1
        return x * name.n

    return program, lambda: name.n


@counting
def a_container_whose_methods_count() -> Built:
    made = [0]

    class Items(list):
        def __iter__(self):
            made[0] += 1
            return super().__iter__()

        def __len__(self):
            made[0] += 1
            return super().__len__()

    items = Items([1.0, 2.0])
    return lambda x: x * sum(items), lambda: made


@counting
def attributes_that_are_counted() -> Built:
    class Counted:
        def __init__(self):
            object.__setattr__(self, "n", 0)
            object.__setattr__(self, "scale", 2.0)

        def __getattribute__(self, name):
            object.__setattr__(self, "n", object.__getattribute__(self, "n") + 1)
            return object.__getattribute__(self, name)

    counted = Counted()
    return lambda x: x * counted.scale, lambda: object.__getattribute__(counted, "n")


@counting
def a_weak_reference() -> Built:
    parent = nn.Module()
    parent.n = 0

    class Child(nn.Module):
        def __init__(self, parent):
            super().__init__()
            self.parent = weakref.ref(parent)

        def forward(self, x):
            self.parent().n += 1
            return x * self.parent().n

    return Child(parent), lambda: parent.n


@counting
def a_proxy() -> Built:
    parent = nn.Module()
    parent.n = 0
    proxy = weakref.proxy(parent)

    def program(x):
        proxy.n += 1
        return x * proxy.n

    return program, lambda: parent.n


@counting
def a_weak_method() -> Built:
    class Listener:
        def __init__(self):
            self.n = 0

        def heard(self):
            self.n += 1
            return self.n

    listener = Listener()
    method = weakref.WeakMethod(listener.heard)
    return lambda x: x * method()(), lambda: listener.n


@counting
def weak_containers() -> Built:
    class Listener:
        def __init__(self):
            self.n = 0

    one, two = Listener(), Listener()
    named, every = weakref.WeakValueDictionary(one=one), weakref.WeakSet([two])

    def program(x):
        named["one"].n += 1
        for listener in every:
            listener.n += 2
        return x * named["one"].n

    return program, lambda: [one.n, two.n]


@counting
def a_weak_reference_to_a_tensor() -> Built:
    held = torch.ones(3)
    reference, add = weakref.ref(held), held.add_

    def program(x):
        reference().add_(1)
        add(x)
        return x * reference()

    return program, lambda: [held]


@counting
def a_global_of_code_that_was_a_text() -> Built:
    global N
    N = 0
    exec("def count(x):\n    global N\n    N += 1\n    return x * 2", globals(), made := {})  # noqa: S102 - our own text
    return made["count"], lambda: N


@counting
def a_global_by_its_module() -> Built:
    global N
    N = 0

    def program(x):
        sys.modules[__name__].N += 1
        globals()["N"] += 1
        return x * 2

    return program, lambda: N


@pytest.mark.parametrize("name", COUNTING)
def test_code_that_is_reached_counts_as_in_eager(name: str) -> None:
    program, count = COUNTING[name]()
    expected = [(picture(program(inputs(i))), picture(count())) for i in range(3)]
    program, count = COUNTING[name]()
    before = picture(count())
    exe = compile(program, (inputs(0),), "evaluator")
    assert not difference(picture(count()), before)
    for number, (out, after) in enumerate(expected):
        assert not difference(picture(exe(inputs(number))), out)
        assert not difference(picture(count()), after)


def test_what_a_library_makes_of_texts_is_the_librarys() -> None:
    """A dataclass's methods are made of texts; of PyTorch's, they reach hundreds of objects that no program changes."""
    spec = pytree.tree_structure([1, (2, {"a": 3})])
    assert type(spec).__setattr__.__code__.co_filename == "<string>"
    heap = Heap([("program", lambda x: pytree.tree_unflatten([x, x, x], spec))])
    assert not [node for node in heap.nodes if node.kind is kinds.GLOBALS and node.obj["__name__"].startswith("torch")]
