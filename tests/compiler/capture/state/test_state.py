"""Programs that change or read Python's objects, one kind of object at a time."""

import collections
import dataclasses
import functools
import itertools
import random
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.compiler.capture.state.compare import difference, picture
from tests.sampling import covering
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile

# A program of x, and what it may have changed.
Built = tuple[Callable[..., Any], Any]
RIGHT: dict[str, Callable[[], Built]] = {}
REFUSED: dict[str, tuple[str, Callable[[], Built]]] = {}
COUNT = 0


def right(build: Callable[[], Built]) -> Callable[[], Built]:
    """Three calls have to be right."""
    RIGHT[build.__name__] = build
    return build


def refused(match: str) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Compiling is refused with this message and the line that is marked."""

    def register(build: Callable[[], Built]) -> Callable[[], Built]:
        REFUSED[build.__name__] = match, build
        return build

    return register


@right
def a_counter_of_an_object() -> Built:
    class Steps:
        def __init__(self):
            self.n = 0

        def __call__(self, x):
            self.n += 1
            return x * self.n

    steps = Steps()
    return steps, lambda: steps.n


@right
def a_counter_behind_a_property() -> Built:
    class Steps:
        def __init__(self):
            self.count = 0

        @property
        def n(self):
            return self.count

        @n.setter
        def n(self, value):
            self.count = value

    steps = Steps()

    def program(x):
        steps.n = steps.n + 1
        return x * steps.n

    return program, steps


@right
def a_counter_of_a_class() -> Built:
    class Steps:
        n = 0

        @classmethod
        def step(cls, x):
            cls.n += 1
            return x * cls.n

    return Steps.step, lambda: Steps.n


@right
def a_closure_variable() -> Built:
    n = 0

    def program(x):
        nonlocal n
        n += 2
        return x * n

    return program, lambda: n


@right
def a_global() -> Built:
    global COUNT
    COUNT = 1

    def program(x):
        global COUNT
        COUNT += 1
        return x * COUNT

    return program, lambda: COUNT


@right
def a_log() -> Built:
    log: list[torch.Tensor] = []

    def program(x):
        log.append(x * 2)
        log.extend([x + 1, x])
        return x - 1

    return program, log


@right
def a_log_bound_to_its_method() -> Built:
    class Loop:
        def __init__(self):
            self.losses, self.named, self.seen = [], {}, set()

        def step(self, x):
            self.losses.append(x.sum())
            self.named["last"] = x * 3
            self.seen.add("step")
            return x * 2

    loop = Loop()
    return loop.step, loop


@right
def an_attribute_that_is_left_behind() -> Built:
    class Net(nn.Module):
        def forward(self, x):
            self.hidden = x * 2
            return self.hidden + 1

    net = Net()
    return net, lambda: vars(net).get("hidden")


@right
def a_buffer_that_is_replaced_and_written_to() -> Built:
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            self.mean = self.mean * 0.9 + x
            self.mean.mul_(0.5)
            return x - self.mean

    mean = Mean()
    return mean, lambda: dict(mean.named_buffers())


@right
def slots() -> Built:
    class Point:
        __slots__ = ("a", "b")

        def __init__(self):
            self.a = 1

    point = Point()

    def program(x):
        point.a += 1
        point.b = x * point.a
        return point.b

    return program, point


@right
def a_dataclass() -> Built:
    @dataclasses.dataclass
    class Record:
        rows: list
        n: int = 0

    record = Record([])

    def program(x):
        record.rows.append(x)
        record.n += 1
        return x * record.n

    return program, record


@right
def dicts_of_other_classes() -> Built:
    one, two = collections.UserDict(a=1), weakref.WeakKeyDictionary()
    key = types.FunctionType(program_code(), {})
    two[key] = 1

    def program(x):
        one["a"] = one["a"] + 1
        two[key] = two[key] + 1
        return x * one["a"] * two[key]

    return program, lambda: [dict(one), list(two.values())]


def program_code() -> types.CodeType:
    return (lambda: None).__code__


@right
def a_hook() -> Built:
    net, calls = nn.Linear(3, 3), [0]
    net.register_forward_hook(lambda *_: calls.__setitem__(0, calls[0] + 1))
    return net, calls


@right
def a_function_with_a_cache() -> Built:
    @functools.lru_cache
    def ramp(n):
        return torch.arange(float(n))

    return (lambda x: x + ramp(3) * ramp(3)), None


@right
def a_tensor_in_a_tuple() -> Built:
    held = types.SimpleNamespace(pair=(torch.ones(3), "name"))

    def program(x):
        held.pair[0].add_(x)
        return held.pair[0] * 2

    return program, held


@right
def an_object_that_refers_to_itself() -> Built:
    node = types.SimpleNamespace(n=0)
    node.me = node

    def program(x):
        node.me.me.n += 1
        return x * node.n

    return program, lambda: node.n


@right
def what_was_returned_before() -> Built:
    state = types.SimpleNamespace(log=[])

    def program(x):
        state.log.append(x)
        return state.log, state

    return program, state


@refused(r"uses a count.*\n.*\n.*next\(numbers\)")
def an_iterator() -> Built:
    numbers = itertools.count(1)
    return lambda x: x * next(numbers), None


@refused(r"uses a generator")
def a_generator() -> Built:
    numbers = (i for i in range(9))
    return lambda x: x * next(numbers), None


@refused(r"uses a count")
def a_method_of_an_iterator() -> Built:
    following = itertools.count(1).__next__
    return lambda x: x * following(), None


@refused(r"uses a Random")
def random_numbers_of_an_object() -> Built:
    numbers = random.Random(0)
    return lambda x: x * numbers.random(), None


@refused(r"takes the seed(.|\n)*initial_seed")
def a_seed() -> Built:
    return lambda x: x * (torch.initial_seed() % 7), lambda: torch.initial_seed()


@refused(r"Sequential.0.weight is a parameter that the module's first call makes")
def a_lazy_module() -> Built:
    module = torch.nn.Sequential(torch.nn.LazyLinear(3))
    return module, lambda: [type(p) for p in module.parameters()]


@refused(r"draws from Python's random numbers(.|\n)*random\.random\(\)")
def random_numbers_of_python() -> Built:
    return lambda x: x * random.random(), lambda: random.getstate()


@refused(r"draws from NumPy's random numbers(.|\n)*np\.random\.rand\(\)")
def random_numbers_of_numpy() -> Built:
    return lambda x: x * float(np.random.rand()), lambda: np.random.get_state()[1].tolist()


@refused(r"leaves another grad mode(.|\n)*set_grad_enabled")
def a_grad_mode_that_is_left() -> Built:
    def program(x):
        torch.set_grad_enabled(False)
        return x

    return program, torch.is_grad_enabled


@refused(r"keeps")
def a_tensor_of_a_cache_that_is_written_to() -> Built:
    @functools.lru_cache
    def ramp(n):
        return torch.arange(float(n))

    return lambda x: x + ramp(3).add_(1), lambda: ramp.cache_info().currsize


@refused(r"makes a list and puts it in two places(.|\n)*append\(row\)")
def one_list_in_two_places() -> Built:
    one, two = [], []

    def program(x):
        row = [x]
        two.append(row)
        one.append(row)
        return x

    return program, (one, two)


@refused(r"makes a function")
def a_function_that_is_made() -> Built:
    def program(x):
        y = x * 2
        return lambda: y

    return program, None


@refused(r"share memory")
def a_view_of_what_is_written_to() -> Built:
    held = types.SimpleNamespace(whole=torch.zeros(2, 3))
    held.row = held.whole[0]

    def program(x):
        held.whole[0] = x
        return held.row * 2

    return program, held


def everything(changed: Any) -> list[Any]:
    return picture(changed() if callable(changed) else changed)


def inputs(number: int) -> torch.Tensor:
    return torch.arange(3.0) * 0.5 + 0.25 + number


@pytest.mark.parametrize(("name", "target"), covering(RIGHT, ["evaluator", "linalg"], strength=1))
def test_calls_change_objects_as_eager_does(name: str, target: str) -> None:
    torch.manual_seed(0)
    program, changed = RIGHT[name]()
    expected = []
    with torch.no_grad():
        expected = [(picture(program(inputs(i))), everything(changed)) for i in range(3)]
    torch.manual_seed(0)
    program, changed = RIGHT[name]()
    before = everything(changed)
    exe = compile(program, (inputs(0),), target)
    assert not difference(everything(changed), before)
    for number, (out, after) in enumerate(expected):
        assert not difference(picture(exe(inputs(number))), out)
        assert not difference(everything(changed), after)


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_call_could_do_again_is_refused_at_its_line_and_left_alone(name: str) -> None:
    match, build = REFUSED[name]
    program, changed = build()
    before = everything(changed)
    with pytest.raises(Unsupported, match=match):
        compile(program, (inputs(0),), "evaluator")
    assert not difference(everything(changed), before)
