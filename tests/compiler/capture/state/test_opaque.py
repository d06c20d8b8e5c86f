"""Python objects that nobody takes apart: refused where the program uses them, no trouble where it only has them."""

import collections
import concurrent.futures
import configparser
import contextlib
import ctypes
import datetime
import itertools
import logging
import operator
import pathlib
import queue
import random
import re
import threading
import types
import unittest.mock
import xml.etree.ElementTree
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile

TARGET = "evaluator"
NUMBERS = itertools.count()


def x(number: int = 0) -> torch.Tensor:
    return torch.arange(3.0) + number


class Records(logging.Handler):
    """A handler that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def a_logger(level: int) -> tuple[logging.Logger, Records]:
    log, records = logging.getLogger(f"a program's, number {next(NUMBERS)}"), Records()
    log.setLevel(level)
    log.propagate = False
    log.addHandler(records)
    return log, records


def deque_iterator() -> Any:
    return iter(collections.deque([1.0, 2.0, 3.0]))


def loader_iterator() -> Any:
    return iter(torch.utils.data.DataLoader(torch.arange(8.0), batch_size=1))  # type: ignore[arg-type]


def done() -> concurrent.futures.Future[float]:
    future: concurrent.futures.Future[float] = concurrent.futures.Future()
    future.set_result(2.0)
    return future


def filled() -> Any:
    held = threading.local()
    held.scale = 2.0
    return held


class Number(ctypes.c_int):
    """A class of the program's own that keeps its value out of Python's sight."""


# What is held, what a program does with it (beside x), and what a look at it from outside gives.
USED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "event set": (threading.Event, lambda o: o.set(), lambda o: o.is_set()),
    "event read": (threading.Event, lambda o: o.is_set(), lambda o: o.is_set()),
    "semaphore": (threading.Semaphore, lambda o: o.acquire(), lambda o: o._value),
    "queue": (queue.SimpleQueue, lambda o: o.put(1), lambda o: o.qsize()),
    "future": (done, lambda o: o.result(), lambda o: o.done()),
    "mock": (unittest.mock.Mock, lambda o: o(1), lambda o: o.call_count),
    "attribute of a mock": (unittest.mock.Mock, lambda o: o.some.thing(1), lambda o: o.mock_calls),
    "parser": (configparser.ConfigParser, lambda o: o.add_section("a"), lambda o: o.sections()),
    "element": (lambda: xml.etree.ElementTree.Element("a"), lambda o: o.set("k", "v"), lambda o: o.attrib),
    "ctypes": (lambda: ctypes.c_int(0), lambda o: setattr(o, "value", 3), lambda o: o.value),
    "ctypes array": (lambda: (ctypes.c_int * 2)(), lambda o: operator.setitem(o, 0, 3), lambda o: o[0]),
    "class over a C class": (lambda: Number(0), lambda o: setattr(o, "value", 3), lambda o: o.value),
    "memoryview": (lambda: memoryview(bytearray(b"ab")), lambda o: operator.setitem(o, 0, 9), lambda o: bytes(o)),
    "objects": (lambda: np.array([None, 1], dtype=object), lambda o: operator.setitem(o, 0, 9), lambda o: o.tolist()),
    "random": (lambda: random.Random(0), lambda o: o.random(), lambda o: o.getstate()),
    "thread local": (filled, lambda o: o.scale, lambda o: o.scale),
    "deque iterator": (deque_iterator, next, operator.length_hint),
    "list iterator": (lambda: iter([1.0, 2.0]), next, operator.length_hint),
    "dict iterator": (lambda: iter({"a": 1}), next, operator.length_hint),
    "count": (lambda: itertools.count(1), next, repr),
    "for loop": (lambda: iter([1.0, 2.0]), lambda o: [0 for _ in o], operator.length_hint),
    "generator": (lambda: (i for i in range(3)), next, lambda o: o.gi_frame.f_lasti),
    "loader": (lambda: torch.utils.data.DataLoader([1.0, 2.0]), lambda o: next(iter(o)), lambda o: o._iterator),  # type: ignore[arg-type]
    "loader's iterator": (loader_iterator, next, lambda o: o._num_yielded),
    "with": (threading.Semaphore, lambda o: o.__enter__(), lambda o: o._value),
    "text": (lambda: threading.Event(), str, lambda o: o.is_set()),
}


@pytest.mark.parametrize("place", ["closure", "attribute", "tuple", "argument"])
@pytest.mark.parametrize("name", USED)
def test_what_is_not_taken_apart_is_refused_where_it_is_used_and_left_alone(name: str, place: str) -> None:
    make, use, look = USED[name]
    obj = make()
    before = look(obj)
    holder = types.SimpleNamespace(obj=obj, pair=(obj, 1))
    programs = {
        "closure": lambda x: (x * 2, use(obj))[0],
        "attribute": lambda x: (x * 2, use(holder.obj))[0],
        "tuple": lambda x: (x * 2, use(holder.pair[0]))[0],
        "argument": lambda x, o: (x * 2, use(o))[0],
    }
    args = (x(), obj) if place == "argument" else (x(),)
    with pytest.raises(Unsupported, match=r"the program uses an? (.|\n)*test_opaque\.py:\d+"):
        compile(programs[place], args, TARGET)
    assert look(obj) == before


@pytest.mark.parametrize("name", USED)
def test_what_is_only_held_is_no_trouble(name: str) -> None:
    obj = USED[name][0]()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.obj, self.last = obj, None

        def forward(self, x):
            self.last = self.obj
            known = self.obj is not None and self.obj is obj and isinstance(self.obj, type(obj))
            return (x * 2 if known else x), self.obj

    net = Net()
    exe = compile(net, (x(),), TARGET)
    assert net.last is None
    out, same = exe(x(1))
    assert torch.equal(out, x(1) * 2)
    assert same is obj
    assert net.last is obj
    assert net.obj is obj


def test_a_method_of_what_is_not_taken_apart() -> None:
    event = threading.Event()
    holder = types.SimpleNamespace(stop=event.set)
    with pytest.raises(Unsupported, match=r"the program uses an Event"):
        compile(lambda x: (x * 2, holder.stop())[0], (x(),), TARGET)
    assert not event.is_set()


def test_what_does_not_change_is_no_trouble() -> None:
    lock, again = threading.Lock(), threading.RLock()
    pattern, path, day = re.compile("a"), pathlib.PurePath("a/b"), datetime.date(2020, 1, 2)
    nothing, mark = contextlib.nullcontext(), object()

    def program(x, seen=mark):
        with lock, again, nothing:
            scale = 2 if pattern.match("abc") and path.name == "b" and seen is mark else 3
            return x * scale + day.day

    assert torch.equal(compile(program, (x(),), TARGET)(x(1)), x(1) * 2 + 2)


def test_a_parser_that_is_taken_apart_as_little_as_it_is_used() -> None:
    parser = configparser.ConfigParser()
    parser.read_string("[a]\ns=2")
    exe = None
    with contextlib.suppress(Unsupported):
        exe = compile(lambda x: x * parser.getfloat("a", "s"), (x(),), TARGET)
    parser["a"]["s"] = "9"
    if exe is not None:
        with pytest.raises(GuardError):
            exe(x())


@pytest.mark.parametrize("kind", ["proxy", "keys", "values", "items"])
def test_a_view_of_a_dict_is_what_the_dict_is(kind: str) -> None:
    held = {2.0: 3.0}
    view = types.MappingProxyType(held) if kind == "proxy" else getattr(held, kind)()

    def program(x):
        return x * (view[2.0] if kind == "proxy" else sum(sum(e) if isinstance(e, tuple) else e for e in view))

    exe = compile(program, (x(),), TARGET)
    assert torch.equal(exe(x(1)), program(x(1)))
    held[2.0 if kind in ("proxy", "values", "items") else 4.0] = 9.0
    with pytest.raises(GuardError):
        exe(x())


def test_a_view_of_a_dict_that_the_program_writes_to() -> None:
    def build() -> tuple[Any, Any]:
        held: dict[str, Any] = {"n": 1}
        view = types.MappingProxyType(held)

        def program(x):
            held["n"] += 1
            return x * view["n"]

        return program, held

    program, held = build()
    exe = compile(program, (x(),), TARGET)
    assert held == {"n": 1}
    other, theirs = build()
    for number in range(3):
        assert torch.equal(exe(x(number)), other(x(number)))
        assert held == theirs


@pytest.mark.parametrize(
    "get",
    [operator.attrgetter("inner.k"), operator.methodcaller("of", 1), operator.itemgetter(0)],
    ids=["attrgetter", "methodcaller", "itemgetter"],
)
def test_what_a_getter_made_outside_gets_is_guarded(get: Any) -> None:
    class Held:
        def __init__(self):
            self.inner = types.SimpleNamespace(k=2.0)

        def of(self, n):
            return self.inner.k

        def __getitem__(self, n):
            return self.inner.k

    held = Held()
    exe = compile(lambda x: x * get(held), (x(),), TARGET)
    assert torch.equal(exe(x()), x() * 2)
    held.inner.k = 9.0
    with pytest.raises(GuardError):
        exe(x())


def test_data_sets_of_pytorch_are_objects_like_any() -> None:
    data = torch.utils.data.TensorDataset(torch.ones(2, 3))
    exe = compile(lambda x: x + data[0][0], (x(),), TARGET)
    assert torch.equal(exe(x()), x() + 1)
    data.tensors = (torch.ones(2, 3) * 9,)
    with contextlib.suppress(GuardError):
        assert torch.equal(exe(x()), x() + 9)
    parts = torch.utils.data.Subset(data, [0])
    exe = compile(lambda x: x + parts[0][0], (x(),), TARGET)
    parts.indices = [5]
    with pytest.raises(GuardError):
        exe(x())


def test_a_log_below_its_level_is_silent() -> None:
    log, records = a_logger(logging.WARNING)

    def program(x):
        log.debug("x is %s", 1)
        if log.isEnabledFor(logging.DEBUG):
            return x * 3
        return x * 2

    exe = compile(program, (x(),), TARGET)
    assert torch.equal(exe(x()), x() * 2)
    assert not records.texts
    log.setLevel(logging.DEBUG)
    with pytest.raises(GuardError, match="logger"):
        exe(x())
    log.setLevel(logging.WARNING)
    assert torch.equal(exe(x(1)), x(1) * 2)


@pytest.mark.parametrize(
    "use",
    [
        lambda log: log.warning("now"),
        lambda log: log.log(50, "now"),
        lambda log: log.setLevel(10),
        lambda log: log.addHandler(logging.NullHandler()),
        lambda log: log.level,
        lambda log: log.getEffectiveLevel(),
        lambda log: log.handlers.clear(),
        lambda log: logging.getLogger("never seen before").error("now"),
        lambda log: logging.error("now"),
    ],
)
def test_a_log_that_is_written_or_asked_is_refused_and_written_by_nobody(use: Callable[[Any], Any]) -> None:
    log, records = a_logger(logging.INFO)

    def program(x):
        use(log)
        return x * 2

    root = logging.getLogger()
    root.addHandler(records)
    try:
        with pytest.raises(Unsupported, match=r"[lL]ogger(.|\n)*test_opaque\.py:\d+"):
            compile(program, (x(),), TARGET)
    finally:
        root.removeHandler(records)
    assert (log.level, log.handlers, records.texts) == (logging.INFO, [records], [])
