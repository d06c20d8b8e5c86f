"""Python objects that nobody takes apart: refused where the program uses them, no trouble where it only has them."""

import collections
import concurrent.futures
import configparser
import contextlib
import ctypes
import datetime
import functools
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
    "structured": (lambda: np.zeros(2, "i4,f4"), lambda o: operator.setitem(o, 0, (9, 9)), lambda o: o.tolist()),
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
    "with": (threading.Condition, lambda o: o.__enter__(), lambda o: o.acquire(False) and o.release()),
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


def test_what_a_cache_holds_before_counts() -> None:
    held = {"k": 2.0, "misses": 0}

    @functools.lru_cache
    def scale(name, *, by=1):
        held["misses"] += 1
        return held[name] * by

    def program(x):
        return x * scale("k", by=3)

    scale("k", by=3)
    held["k"] = 5.0
    exe = compile(program, (x(),), TARGET)
    assert torch.equal(exe(x(1)), x(1) * 6)
    assert held == {"k": 5.0, "misses": 1}
    scale.cache_clear()
    with pytest.raises(GuardError, match="scale"):
        exe(x())


@pytest.mark.parametrize("size", [None, 8])
def test_a_cache_is_filled_by_a_call_as_by_eager(size: int | None) -> None:
    @functools.lru_cache(size)
    def ramp(n):
        return torch.arange(float(n))

    def program(x):
        return x + ramp(3) * ramp(3)

    exe = compile(program, (x(),), TARGET)
    assert ramp.cache_info().currsize == 0
    for number in range(3):
        assert torch.equal(exe(x(number)), x(number) + torch.tensor([0.0, 1.0, 4.0]))
        assert ramp.cache_info().currsize == 1


def test_a_function_with_a_cache_that_changes_objects() -> None:
    held = {"misses": 0}

    @functools.cache
    def scale():
        held["misses"] += 1
        return 2.0

    with pytest.raises(Unsupported, match=r"scale(.|\n)*test_opaque\.py:\d+"):
        compile(lambda x: x * scale(), (x(),), TARGET)
    assert held == {"misses": 0}
    assert scale.cache_info().currsize == 0


def test_what_a_cache_keeps_is_looked_at() -> None:
    @functools.lru_cache
    def rows():
        return [1.0, torch.ones(3)]

    rows()[0] = 5.0

    def program(x):
        return x * rows()[0] + rows()[1]

    exe = compile(program, (x(),), TARGET)
    assert torch.equal(exe(x()), program(x()))
    rows()[1].add_(1)
    with contextlib.suppress(GuardError):
        assert torch.equal(exe(x()), program(x()))
    rows()[0] = 7.0
    with pytest.raises(GuardError, match="rows"):
        exe(x())


def test_what_a_call_puts_into_a_cache_is_looked_at() -> None:
    @functools.lru_cache
    def ramp():
        return torch.arange(3.0)

    def program(x):
        return x + ramp()

    exe = compile(program, (x(),), TARGET)
    assert torch.equal(exe(x()), program(x()))
    ramp().add_(1)
    with pytest.raises(GuardError, match="ramp"):
        exe(x())


@functools.lru_cache
def noise():
    return torch.randn(3)


@functools.lru_cache
def table():
    return [torch.arange(3.0)]


@pytest.mark.parametrize(
    "program",
    [lambda x: x + noise(), lambda x: (x, table()), lambda x: table()[0][1:], lambda x: (x, table().append(1))[0]],
)
def test_what_would_be_other_when_it_is_computed_anew_is_refused(program: Callable[..., Any]) -> None:
    with pytest.raises(Unsupported, match="lru_cache"):
        compile(program, (x(),), TARGET)
    assert not noise.cache_info().currsize + table.cache_info().currsize


@pytest.mark.parametrize("use", [lambda f: f.cache_info().hits, lambda f: f.cache_clear()])
def test_a_cache_that_the_program_looks_at_is_refused(use: Callable[[Any], Any]) -> None:
    @functools.cache
    def scale():
        return 2.0

    scale()
    with pytest.raises(Unsupported, match="cache"):
        compile(lambda x: (x * scale(), use(scale))[0], (x(),), TARGET)
    assert scale.cache_info().currsize == 1


# How a setting is asked for, how it is set, and another value for it.
SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Any]] = {
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    "debug mode": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 1),
    "threads": (torch.get_num_threads, torch.set_num_threads, 3),
    "precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high"),
    "device": (torch.get_default_device, torch.set_default_device, torch.device("meta")),
    "anomalies": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, True),
    "warnings": (torch.is_warn_always_enabled, torch.set_warn_always, True),
    "dtype": (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "fill": (
        lambda: torch.utils.deterministic.fill_uninitialized_memory,
        lambda v: setattr(torch.utils.deterministic, "fill_uninitialized_memory", v),
        False,
    ),
    "cudnn": (
        lambda: torch.backends.cudnn.benchmark,
        lambda v: setattr(torch.backends.cudnn, "benchmark", v),
        True,
    ),
    "printing": (
        lambda: torch._tensor_str.PRINT_OPTS.precision,
        lambda v: torch.set_printoptions(precision=v),
        2,
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_a_program_leaves_is_refused_and_put_back(name: str) -> None:
    get, put, other = SETTINGS[name]
    was = get()
    assert was != other

    def program(x):
        put(other)
        return x * 2

    try:
        with pytest.raises(Unsupported, match=r"leaves another(.|\n)*test_opaque\.py:\d+"):
            compile(program, (x(),), TARGET)
        assert get() == was
    finally:
        put(was)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_a_program_reads_is_guarded(name: str) -> None:
    get, put, other = SETTINGS[name]
    was = get()

    def program(x):
        return x * (3 if get() == other else 2)

    exe = compile(program, (x(),), TARGET)
    assert torch.equal(exe(x()), x() * 2)
    try:
        put(other)
        with pytest.raises(GuardError, match="when compiled"):
            exe(x())
    finally:
        put(was)
    assert torch.equal(exe(x()), x() * 2)


def test_a_setting_that_is_set_and_put_back_in_the_program() -> None:
    def program(x):
        was = torch.get_num_threads()
        torch.set_num_threads(3)
        y = x * torch.get_num_threads()
        torch.set_num_threads(was)
        return y

    exe = compile(program, (x(),), TARGET)
    assert torch.equal(exe(x()), x() * 3)


def test_a_setting_that_the_compiler_changes_itself() -> None:
    with pytest.raises(Unsupported, match="mkldnn"):
        compile(lambda x: x * (2 if torch.backends.mkldnn.enabled else 3), (x(),), TARGET)


def test_denormals_that_a_program_flushes() -> None:
    tiny = torch.full((4,), 1e-40)

    def program(x):
        torch.set_flush_denormal(True)
        return x * 2

    with pytest.raises(Unsupported, match="denormal"):
        compile(program, (x(),), TARGET)
    assert bool((tiny * 1.0 != 0).all())
