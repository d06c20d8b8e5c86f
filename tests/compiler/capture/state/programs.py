"""Programs with Python state, generated as text: lists, dicts, objects, closures, globals, modules, caches, counters.

A program is a function ``program(x, l, d)`` made of drawn statements, beside everything that it reaches (``world``),
and changes that are made to the world between calls. The same seed gives the same program and world each time.
"""

from __future__ import annotations

import linecache
import random
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

# What a program may do; y is the tensor that it computes with, of the sizes of x.
STATEMENTS = """
l.append(y)
l.append(y * 2); y = y + l[-1]
l[0] = y
l.insert(0, y + 1)
l += [y, x]
l.extend(part for part in y)
l.reverse()
del l[0]
l[0].add_(1)
y = y + l[0]
l.append([y, 1])
l.append(len(l))
l.append(l[0])
d["y"] = y
d["a"] = y
d.update(z=y * 2)
d.setdefault("s", y)
d.setdefault("rows", []).append(y)
d["n"] = d["n"] + 1
y = y * d["n"]
y = y + d["a"]
d["a"].mul_(2)
y = y + d.pop("a")
d["in"] = {"deep": (y, 3)}
d.clear()
c.n += 1
c.n += 1; y = y * c.n
c.last = y
c.last = y; y = y + c.last
c.h = c.h * 0.5 + y[0]
y = y + c.h
c.h.add_(1)
c.log.append(c.n)
c.log.append(y)
c.log = [*c.log[-1:], y]
c.items["k"] = y
c.items.setdefault(tuple(y.shape), y * 2)
y = y + c.items.get("k", 1)
y = y + (0 if c.last is None else c.last)
y = y * c.scale
c.scale *= 2
y = y + (1 if c.n % 2 == 0 else 2)
c.previous, c.last = c.last, y
c.made = y
setattr(c, "late", y)
y = y + getattr(c, "late", 0)
y = y + 1 if hasattr(c, "made") else y - 1
c.duo = (y, c.n)
c.both = [y, y]
c.step(y)
y = c.step(y)
c.sums["total"] += y.sum()
c.seen.add(tuple(y.shape))
c.ring.append(y)
y = y + sum(c.ring)
c.child.n += 1; y = y + c.child.n
c.child.h = y
k += 1
k += 1; y = y * k
y = y * k
hist.append(y)
hist.append(k)
hist[:] = hist[-1:]
y = y + (hist[0] if hist else 0)
y = y * len(hist)
cell[0] += 1
cell[0] = cell[0] + y.sum()
y = y + cell[0]
held.add_(y[0])
y = y + held
held = held * 2
COUNT += 1
y = y + COUNT
COUNT = COUNT * 2 + 1; y = y - COUNT
LOG.append(COUNT)
LOG.append(y)
y = y * SCALE
BUFFER.add_(1)
y = y + BUFFER
TABLE["v"] = y
y = y + TABLE.get("v", 3)
y = y + remembered(y, "key")
y = scaled(y)
y = y + counted()
collect(y)
y = y + table(3)
Cache.total += 1
y = y * Cache.total
y = net(y)
y = net(y) + net.lin.weight[0, 0]
y = y @ net.lin.weight
net.count += 1
y = y * net.count
net.last = y
net.mean = net.mean * 0.9 + y.mean(0)
net.mean.mul_(0.5)
y = y + net.mean
y = y + 1 if net.training else y
net.rows.append(y)
with torch.no_grad(): net.lin.bias.add_(1)
s = float(y.sum()); y = y / (1 + abs(s))
c.loss = float(y.mean())
c.loss = y.mean().item()
c.best = max(c.best, y.sum().item())
y = -y if y.sum() > 0 else y
c.flag = bool(y.sum() > 0)
y = y[: int(index)] if False else y * int(index)
c.view = y[0]; c.view2 = y
c.view = y.t(); y = y + 1
x.add_(1)
c.shape = y.shape
c.text = f"{c.n}"
c.f = scaled
y = y + c.table[c.n % 3]
y = c.act(y)
y = c.run(y)
y = c.counted(y)
y = y * c.mode.scale()
y = y * c.conf.scale()
y = y * c.pair.scale()
y = y * c.gain
c.gain = c.gain * 2
c.owner().n += 1; y = y * c.owner().n
y = y * c.owner().n
y = y + 1 if hasattr(c, "fast") else y - 1
y = y * Derived().total
c.name.n += 1; y = y * c.name.n
globals()["COUNT"] += 1; y = y + COUNT
c.marks = {1, 2}; c.marked = c.marks
c.both_ways["c"].n += 1; y = y * c.n
y = y + (ABSENT if "ABSENT" in globals() else 0)
""".strip().splitlines()

RESULTS = """
y
y, x
y, l
y, d
c.h
y, c.n
y, k
[y, c.last]
{"y": y, "l": l}
y, y.t(), y[0]
y.view(-1), y
y, net.mean
y, COUNT
hist
c.log
y, c
l[0] if l else y
y.sum()
None
y, held
""".strip().splitlines()

# What may happen between two calls; w is the world.
CHANGES = """
pass
pass
w.l = [torch.full((2, 3), 5.0)]
w.l.append(torch.ones(2, 3))
w.d = {"a": torch.full((2, 3), 2.0), "n": 5}
w.d["a"] = torch.zeros(2, 3)
w.d["n"] = 7
w.c.scale = 3.5
w.c.n = 10
w.c.h = torch.full((3,), 4.0)
w.c.h.fill_(2.5)
w.c.last = None
w.c.items.clear()
w.c.log.clear()
w.c.late = 2.0
w.c.table = [3, 2, 1]
w.c.child = type(w.c.child)()
w.net.lin.weight = torch.nn.Parameter(torch.full((3, 3), 0.25))
w.net.lin.weight.data = torch.full((3, 3), 0.75)
w.net.lin = torch.nn.Linear(3, 3)
w.net.lin._forward_hooks[0] = lambda m, a, out: out + 1
w.net.mean = torch.ones(3)
w.net.count = 4
w.net.eval()
w.net.load_state_dict({name: torch.ones_like(t) for name, t in w.net.state_dict().items()})
w.space["SCALE"] = 4.0
w.space["COUNT"] = 6
w.space["BUFFER"] = torch.full((3,), 7.0)
w.space["BUFFER"].fill_(3.0)
w.space["TABLE"].clear()
w.space["scaled"] = lambda y: y * 9
w.space["Cache"].total = 5
w.space["Cache"].fast = True
w.space["Derived"].total = 6
w.space["ABSENT"] = 2.0
w.space["step"].calls = 7
w.c.act = torch.neg
w.c.run = w.c.thrice
w.c.conf = type(w.c.conf)(k=3.0)
w.c.pair = type(w.c.pair)(3.0)
w.c.mode = w.space["Mode"].TWO
w.c.gain = 5.0
w.c.owner().n = 5
w.c.both_ways = {"c": type(w.c)()}
w.c.name.n = 8
w.set_k(5)
w.set_held(torch.full((3,), 3.0))
w.hist.clear()
w.cell[0] = 2
w.index.fill_(1)
""".strip().splitlines()

_SETUP = """
import collections, enum, functools, typing, weakref, torch
from torch import nn
COUNT, LOG, SCALE, BUFFER, TABLE = 0, [], 2.0, torch.ones(3), {{}}
class Step:
    def __init__(self, function):
        self.function, self.calls = function, 0
    def __get__(self, obj, cls=None):
        return functools.partial(self, obj)
    def __call__(self, obj, y):
        self.calls += 1
        return self.function(obj, y) * self.calls
class Gain:
    value = 1.5
    def __get__(self, obj, cls=None):
        return self.value
    def __set__(self, obj, value):
        self.value = value
class Conf(dict):
    def scale(self):
        LOG.append("conf")
        return self["k"] * SCALE
class Pair(typing.NamedTuple):
    k: float
    def scale(self):
        return self.k * SCALE
class Mode(enum.Enum):
    ONE, TWO = 1.0, 2.0
    def scale(self):
        return self.value * SCALE
class Name(str):
    n = 0
class Owner:
    n = 1
owner, gain = Owner(), Gain()
class Child:
    __slots__ = ("n", "h")
    def __init__(self):
        self.n, self.h = 1, None
class Cache:
    total = 1
    def __init__(self):
        self.n, self.last, self.log, self.items, self.scale = 1, None, [], {{}}, 1.5
        self.h, self.child, self.table, self.best = torch.ones(3), Child(), [1, 2, 3], 0.0
        self.act, self.run, self.conf, self.pair = torch.relu, self.twice, Conf(k=2.0), Pair(2.0)
        self.mode, self.name, self.both_ways = Mode.ONE, Name("name"), {{"c": self}}
        self.owner = weakref.ref(owner)
        self.sums, self.seen, self.ring = collections.defaultdict(float), set(), collections.deque(maxlen=2)
    def step(self, y):
        self.n += 1
        self.h = self.h + 1
        return y + self.h
    def twice(self, y):
        return y * 2
    def thrice(self, y):
        return y * 3
    @Step
    def counted(self, y):
        return y + 1
    gain = gain
step = vars(Cache)["counted"]
class Derived(Cache):
    def __init__(self):
        pass
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.count, self.last, self.rows = nn.Linear(3, 3), 1, None, []
        self.register_buffer("mean", torch.zeros(3))
    def forward(self, y):
        {body}
        return self.lin(y)
def remembered(y, key):
    if key not in TABLE:
        TABLE[key] = y.sum()
    return TABLE[key]
def scaled(y):
    return y * SCALE
def counted():
    counted.calls = getattr(counted, "calls", 0) + 1
    return counted.calls
def collect(y, into=[]):
    into.append(y)
@functools.lru_cache
def table(n):
    return torch.arange(float(n))
def make():
    c, net, k, hist, cell, held, index = Cache(), Net(), 1, [], [1], torch.ones(3), torch.tensor(2)
    def program(x, l, d):
        nonlocal k, held
        global COUNT
        y = x * 1
        {statements}
        return {result}
    def set_k(value):
        nonlocal k
        k = value
    def set_held(value):
        nonlocal held
        held = value
    return program, dict(c=c, net=net, hist=hist, cell=cell, index=index, set_k=set_k, set_held=set_held)
"""

_FORWARD = """
self.count += 1
self.mean = self.mean * 0.9 + y.mean(0).detach()
self.mean.add_(1)
self.last = y
y = y * self.count
self.rows.append(y)
pass
pass
""".strip().splitlines()


@dataclass
class World:
    """What a program is and reaches: the program, its list, its dict, its objects, its globals."""

    program: Callable[..., Any]
    l: list[Any]  # noqa: E741
    d: dict[str, Any]
    space: dict[str, Any]
    made: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.made[name]
        except KeyError:
            raise AttributeError(name) from None

    def everything(self) -> Any:
        """All that a program may have changed, to be compared."""
        closure = zip(self.program.__code__.co_freevars, self.program.__closure__ or (), strict=True)
        cells = {name: cell.cell_contents for name, cell in closure}
        names = ("COUNT", "LOG", "SCALE", "BUFFER", "TABLE")
        functions = [vars(self.space["counted"]), self.space["collect"].__defaults__]
        values = [self.space[name] for name in names]
        counts = [self.space["Cache"].total, self.space["step"].calls, vars(self.space["gain"]), self.space["owner"].n]
        return [self.l, self.d, cells, values, functions, counts, self.hist, self.c, self.net]


@dataclass(frozen=True)
class Drawn:
    """A program as text, and the changes between its calls."""

    seed: int
    text: str
    changes: tuple[str, ...]

    def build(self) -> World:
        """Return the program with a world of its own, always the same."""
        torch.manual_seed(self.seed)
        file = f"program_{self.seed}.py"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)
        space: dict[str, Any] = types.ModuleType("__generated__").__dict__
        exec(compile(self.text, file, "exec"), space)  # noqa: S102 - our own text
        program, made = space["make"]()
        return World(program, [torch.ones(2, 3)], {"a": torch.ones(2, 3), "n": 2}, space, made)

    def change(self, world: World, number: int) -> None:
        """Make a change to a world before a call."""
        torch.manual_seed(self.seed + number)
        exec(self.changes[number], {"w": world, "torch": torch})  # noqa: S102 - our own text


def draw(seed: int) -> Drawn:
    """Draw a program of one to six statements."""
    chosen = random.Random(seed)
    statements = chosen.sample(STATEMENTS, chosen.randint(1, 6))
    text = _SETUP.format(
        body=chosen.choice(_FORWARD), statements="\n        ".join(statements), result=chosen.choice(RESULTS)
    )
    changes = ("pass", chosen.choice(CHANGES), chosen.choice(CHANGES))
    return Drawn(seed, text, changes)
