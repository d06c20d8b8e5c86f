"""What an op takes, learned by trial: calls that eager accepts, as different from each other as they can be.

First calls of the plainest kind are tried, until some are accepted: tensors of one shape, then shapes as products,
layers and indexing have them; then tensors of other dtypes; each with some numbers and words for the other arguments.
Words come from what eager says when it refuses one, those in quotes first. Then each call that was accepted is changed
in one thing at a time: a rank, a size (0 and 1 too), a dim that is broadcast, another number or word, an argument given
or left out, a list of tensors that is longer or shorter, or whose tensors differ.

Everything is drawn from the op's name: the same op is learned alike everywhere. Trials run in a fork.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import random
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.custom.apart import Died, Made, Steps, stream
from torchstone.conformance.custom.domain import ANY, MODERATE, Call, Domain, TensorSpec, filled, specs
from torchstone.conformance.custom.registration import CustomOp
from torchstone.conformance.custom.signature import Argument, Kind, arguments_of, split
from torchstone.conformance.errors import InputError
from torchstone.conformance.program.literals import DTYPES, leaves
from torchstone.conformance.sources.sampling import first_line, seeded
from torchstone.conformance.variants.arguments import NAMES

FIRST_TRIALS, OTHER_TRIALS, MORE_TRIALS = 6000, 800, 2500
"""Calls that are tried: the plainest in the first dtype, in each other one, and changed ones."""
TURNS = (200, 120, 30, 8)
"""How many calls are tried at a turn, by how many tensors are not of the dtype that is asked for."""
ENOUGH = 12
"""Accepted calls after which the first search ends."""
KEPT = 36
"""Calls of a domain."""
DTYPES_TRIED = ("float32", "int64", "bool", "complex64", "float64", "uint8")
MOST_WORDS = 40
BEYOND = 2000
"""A bound of places that no dim has. Not more: an op may make as many rows of it."""
_QUOTED = re.compile(r"['\"`]([A-Za-z][\w. -]{0,30})['\"`]")
_BARE = re.compile(r"(?<![\w'\"`.])[A-Za-z][\w-]{0,30}(?![\w'\"`])")
_UNKNOWN_WORD = "not_a_word"

WHOLE = (1, 2, 0, -1, 3, -2)
FRACTIONS = (1.0, 0.5, 2.0, 0.0, -0.5, 1e-3, -3.0)
LISTS = ((1,), (0,), (1, 1), (2, 2), (0, 1), (-1,), (2, 3), (1, 1, 1), (3, 4), (12,), (1, 2, 2), (2, 1, 3), ())
FIXED = (TensorSpec("int64", (), 2), TensorSpec("bool", ()), TensorSpec("float32", ()), TensorSpec(ANY, (), None, True))
"""What a tensor may be that is not of the dtype that is asked for: places, a mask, a scale; and one of no zeros."""

SHAPES = ((3, 4), (4,), (2, 3, 4), (), (3, 3), (2, 3, 8, 8), (2, 3, 8), (2, 1, 3, 2, 2), (4, 4), (2, 3, 3), (1, 4))


def learn(op: CustomOp) -> Domain:
    """The domain of an op. Raises ``InputError`` where eager accepts nothing that was tried."""
    calls: list[Call] = []
    refusals: dict[str, int] = {}
    deaths: list[Died] = []
    with tempfile.TemporaryDirectory() as folder:  # an op may take a word for a file's name
        for found in stream(lambda steps: _Search(op, steps, folder).run()):
            if isinstance(found, Died):
                deaths.append(found)
            elif found.key == "refusals":
                refusals = found.told
            else:
                calls += Domain.from_toml(found.told, op.name).calls
    if not calls:
        why = "; ".join(sorted(refusals, key=lambda text: -refusals[text])[:3])
        died = f"; {len(deaths)} of them ended the process" if deaths else ""
        raise InputError(
            f"nothing that was tried is taken by {op.name}{died}: {why}; register it with a sample function"
        )
    return Domain(op.name, str(op.schema or op.target), tuple(_different(calls)))


@dataclass
class _Search:
    op: CustomOp
    steps: Steps
    folder: str
    accepted: dict[str, Call] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    words: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)
    unbounded: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.arguments = arguments_of(self.op)
        self.random = random.Random(self.op.name)
        self.dtype = torch.float32

    def run(self) -> Iterator[Made]:
        os.chdir(self.folder)  # of the fork
        with warnings.catch_warnings(), seeded(self.op.name):
            warnings.simplefilter("ignore")
            for dtype in DTYPES_TRIED:
                self.dtype = DTYPES[dtype]
                most = FIRST_TRIALS if dtype == DTYPES_TRIED[0] else OTHER_TRIALS
                yield from self._try_all(itertools.islice(self._first_calls(), most), ENOUGH)
                if self.accepted:
                    break
            yield from self._try_all(self._changed_calls(), None)
        yield Made("refusals", dict(sorted(self.refusals.items(), key=lambda item: -item[1])[:20]))

    def _try_all(self, calls: Iterator[Call], enough: int | None) -> Iterator[Made]:
        for call in calls:
            key = Domain("", "", (call,)).to_toml()
            if key in self.tried:
                continue
            self.tried.add(key)
            if self.steps.begin(key) and self._takes(call):
                self.accepted[key] = call
                yield Made(key, key)
            if enough is not None and len(self.accepted) >= enough:
                return

    def _takes(self, call: Call) -> bool:
        """Whether eager accepts a call, and gives tensors or writes to one."""
        torch.default_generator.manual_seed(0)
        given = filled(call, self.dtype, MODERATE)
        farthest = {name: given[name].clone().fill_(spec.below - 1) for name, spec in call.items() if _is_place(spec)}
        try:
            with torch.no_grad():
                for some in (farthest, {}) if farthest else ({},):
                    args, kwargs = split(self.arguments, given | some)
                    found = self.op.function(*args, **kwargs)
        except Exception as error:
            self._learn_words(str(error), call)
            line = f"{type(error).__name__}: {first_line(error)}"
            self.refusals[line] = self.refusals.get(line, 0) + 1
            return False
        tensors = [leaf for leaf in leaves(found) if isinstance(leaf, Tensor)]
        return bool(tensors) or found is None

    def _learn_words(self, message: str, call: Call) -> None:
        if not any(argument.kind is Kind.WORD for argument in self.arguments):
            return
        for known, pattern in ((self.words, _QUOTED), (self.bare, _BARE)):
            for word in pattern.findall(message):
                if word not in known and word != _UNKNOWN_WORD and len(known) < MOST_WORDS:
                    known.append(word)

    # -- first calls -----------------------------------------------------------------------------------------------

    def _first_calls(self) -> Iterator[Call]:
        """Calls with what has to be given, by turns some of each choice of dtypes, until eager accepts one."""
        tensors = [a for a in self.arguments if a.kind in (Kind.TENSOR, Kind.TENSORS) and a.required]
        plain = TensorSpec(ANY, ())
        waiting = [
            (sum(role != plain for role in roles), self._of_roles(tensors, roles)) for roles in _roles(len(tensors))
        ]
        while waiting:
            left = []
            for changed, calls in waiting:
                asked = 0
                for call in itertools.islice(calls, TURNS[min(changed, len(TURNS) - 1)]):
                    asked += 1
                    yield call  # one by one: the next has the words that this one taught
                if self.accepted:  # no more dtypes than are needed: what else is taken is seen in changed calls
                    yield from itertools.islice(calls, TURNS[0])
                    return
                left += [(changed, calls)] if asked else []
            waiting = left

    def _of_roles(self, tensors: list[Argument], roles: tuple[TensorSpec, ...]) -> Iterator[Call]:
        for shapes in _shape_choices(len(tensors), self.random):
            drawn = {
                argument.name: _tensor(argument, role, shape)
                for argument, role, shape in zip(tensors, roles, shapes, strict=True)
            }
            for _ in range(self._tries()):
                yield self._ordered(drawn | self._literals())

    def _tries(self) -> int:
        """Draws of the other arguments for one choice of tensors."""
        required = sum(a.required and a.kind not in (Kind.TENSOR, Kind.TENSORS) for a in self.arguments)
        return (1, 4, 8, 12)[min(required, 3)]

    def _literals(self) -> dict[str, Any]:
        """Something for each argument that has to be given and is no tensor."""
        needed = [a for a in self.arguments if a.required and a.kind not in (Kind.TENSOR, Kind.TENSORS)]
        return {argument.name: self.random.choice(self._candidates(argument)) for argument in needed}

    def _candidates(self, argument: Argument) -> list[Any]:
        known: dict[Kind, list[Any]] = {
            Kind.INT: list(WHOLE),
            Kind.FLOAT: list(FRACTIONS),
            Kind.BOOL: [False, True],
            Kind.WORD: self._words(),
            Kind.DTYPE: [torch.float32, torch.float64, torch.int64],
            Kind.INTS: [list(numbers) for numbers in LISTS if argument.length in (None, len(numbers), 0)],
            Kind.FLOATS: [[1.0], [0.5, 2.0], [1.0, -1.0, 0.5]],
            Kind.BOOLS: [[True], [False, True], [True, True, False]],
        }
        found = known.get(argument.kind, [None])
        return [*found, None] if argument.optional else found

    def _words(self) -> list[str]:
        """Words for an argument: those in quotes in what eager said, most often; those without; those of PyTorch's."""
        quoted, others = self.words, [*self.bare, *(() if self.words else _known_words())]
        return [_UNKNOWN_WORD, *quoted * (1 + 2 * len(others) // max(len(quoted), 1)), *others]

    def _ordered(self, given: dict[str, Any]) -> Call:
        return {argument.name: given[argument.name] for argument in self.arguments if argument.name in given}

    # -- changed calls ---------------------------------------------------------------------------------------------

    def _changed_calls(self) -> Iterator[Call]:
        """Accepted calls with something changed; what is accepted of these is changed again."""
        for at in range(MORE_TRIALS):
            known = list(self.accepted.values())
            if not known:
                return
            call = known[at % len(known)] if self.random.random() < 0.7 else known[-1]
            yield self._ordered(self._changed(dict(call)))

    def _changed(self, call: dict[str, Any]) -> dict[str, Any]:
        ways = [self._other_literal, self._other_literal, self._other_rank, self._other_size, self._broadcast]
        ways += [self._optional_tensor, self._other_role, self._farther_places]
        if any(argument.kind is Kind.TENSORS for argument in self.arguments):
            ways += [self._other_length, self._other_member]
        return self.random.choice(ways)(call)

    def _other_literal(self, call: dict[str, Any]) -> dict[str, Any]:
        others = [a for a in self.arguments if a.kind not in (Kind.TENSOR, Kind.TENSORS, Kind.OTHER)]
        if not others:
            return self._other_rank(call)
        argument = self.random.choice(others)
        if not argument.required and self.random.random() < 0.2:
            return {name: value for name, value in call.items() if name != argument.name}
        return call | {argument.name: self.random.choice(self._candidates(argument))}

    def _other_rank(self, call: dict[str, Any]) -> dict[str, Any]:
        """A leading dim more or less for the tensors of the most dims, or one shape for all that have the same."""
        ranks = [len(spec.shape) for value in call.values() for spec in specs(value)]
        if not ranks:
            return call
        way, size = self.random.randrange(3), self.random.choice((2, 3, 1))
        shape = self.random.choice([tuple(self.random.choice((2, 3, 4)) for _ in range(n)) for n in range(6)])
        first = next(spec.shape for value in call.values() for spec in specs(value))

        def changed(spec: TensorSpec) -> TensorSpec:
            if way == 0 and len(spec.shape) == max(ranks) < 5:
                return _with_shape(spec, (size, *spec.shape))
            if way == 1 and len(spec.shape) == max(ranks) > 0:
                return _with_shape(spec, spec.shape[1:])
            return _with_shape(spec, shape) if way == 2 and spec.shape == first else spec

        return {name: _mapped(value, changed) for name, value in call.items()}

    def _other_size(self, call: dict[str, Any]) -> dict[str, Any]:
        """Another size in the place of one, wherever it stands."""
        sizes = sorted({size for value in call.values() for spec in specs(value) for size in spec.shape})
        if not sizes:
            return call
        old, new = self.random.choice(sizes), self.random.choice((0, 1, 2, 5, 6, 7, 8, 16, 17))

        def changed(spec: TensorSpec) -> TensorSpec:
            return _with_shape(spec, tuple(new if size == old else size for size in spec.shape))

        return {name: _mapped(value, changed) for name, value in call.items()}

    def _broadcast(self, call: dict[str, Any]) -> dict[str, Any]:
        """One tensor with a size of 1, or without its leading dim."""
        names = [name for name, value in call.items() if isinstance(value, TensorSpec) and value.shape]
        if not names:
            return call
        name = self.random.choice(names)
        spec = call[name]
        axis = self.random.randrange(len(spec.shape))
        one = (*spec.shape[:axis], 1, *spec.shape[axis + 1 :])
        return call | {name: _with_shape(spec, one if self.random.random() < 0.6 else spec.shape[1:])}

    def _optional_tensor(self, call: dict[str, Any]) -> dict[str, Any]:
        """A tensor that may be left out given, or one that is given left out."""
        free = [a for a in self.arguments if a.kind is Kind.TENSOR and (a.optional or not a.required)]
        if not free:
            return self._other_size(call)
        argument = self.random.choice(free)
        if call.get(argument.name) is not None and argument.optional:
            return call | {argument.name: None}
        shapes = [spec.shape for value in call.values() for spec in specs(value)] or [(4,)]
        shape = self.random.choice(shapes)
        role = self.random.choice((TensorSpec(ANY, ()), TensorSpec(ANY, ()), *FIXED))
        return call | {argument.name: _with_shape(role, self.random.choice((shape, shape[-1:], shape[:1], shape[1:2])))}

    def _farther_places(self, call: dict[str, Any]) -> dict[str, Any]:
        """Whole numbers up to a size, where eager looks whether they are places: it refuses such as no tensor has."""
        names = [name for name, value in call.items() if isinstance(value, TensorSpec) and value.below]
        sizes = {size for value in call.values() for spec in specs(value) for size in spec.shape if size > 2}
        if not names or not sizes:
            return self._other_size(call)
        name = self.random.choice(names)
        beyond = call | {name: dataclasses.replace(call[name], below=BEYOND)}
        if not math.prod(call[name].shape) or name in self.unbounded or not self.steps.begin(str(beyond)):
            return self._other_size(call)
        if self._takes(beyond):
            self.unbounded.add(name)
            return self._other_size(call)
        return call | {name: dataclasses.replace(call[name], below=self.random.choice(sorted(sizes)))}

    def _other_role(self, call: dict[str, Any]) -> dict[str, Any]:
        """One of several tensors of another dtype."""
        names = [name for name, value in call.items() if isinstance(value, TensorSpec)]
        if len(names) < 2 or self.random.random() < 0.7:
            return self._other_size(call)
        name = self.random.choice(names)
        role = self.random.choice((*FIXED[:3], TensorSpec("float64", ())))
        return call | {name: _with_shape(role, call[name].shape)}

    def _other_length(self, call: dict[str, Any]) -> dict[str, Any]:
        """A list of tensors with one more at an end, or one less."""
        lists = self._lists(call)
        if not lists:
            return self._other_size(call)
        name = self.random.choice(lists)
        value = call[name]
        if self.random.random() < 0.5:
            return call | {name: [value[0], *value] if self.random.random() < 0.5 else [*value, value[-1]]}
        left_out = self.random.randrange(len(value))
        return call | {name: [*value[:left_out], *value[left_out + 1 :]]}

    def _other_member(self, call: dict[str, Any]) -> dict[str, Any]:
        """One tensor of a list with another size, or of another dtype, or None in its place."""
        lists = self._lists(call)
        if not lists:
            return self._other_size(call)
        name = self.random.choice(lists)
        value, at = list(call[name]), self.random.randrange(len(call[name]))
        spec, way = value[at], self.random.randrange(6)
        if way == 0 or spec is None:
            value[at] = None if spec is not None else next(specs(value), None)
        elif way == 1:
            value[at] = _with_shape(self.random.choice((*FIXED[:3], TensorSpec("float64", ()))), spec.shape)
        elif spec.shape:
            axis, size = self.random.randrange(len(spec.shape)), self.random.choice((1, 2, 3, 5, 0))
            value[at] = _with_shape(spec, (*spec.shape[:axis], size, *spec.shape[axis + 1 :]))
        return call | {name: value}

    def _lists(self, call: dict[str, Any]) -> list[str]:
        """The arguments that are lists with tensors in them."""
        return [name for name, value in call.items() if isinstance(value, list) and any(specs(value))]


def _is_place(value: Any) -> bool:
    return isinstance(value, TensorSpec) and value.below is not None


def _known_words() -> list[str]:
    return list(dict.fromkeys(word for words in NAMES for word in words))


def _tensor(argument: Argument, role: TensorSpec, shape: tuple[int, ...]) -> Any:
    spec = _with_shape(role, shape)
    return [spec, spec] if argument.kind is Kind.TENSORS else spec


def _with_shape(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(spec.dtype, tuple(shape), spec.below, spec.positive)


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, TensorSpec):
        return change(value)
    return [_mapped(item, change) for item in value] if isinstance(value, list | tuple) else value


def _roles(count: int) -> Iterator[tuple[TensorSpec, ...]]:
    """Which tensor is of which dtype: all of the one that is asked for, then one of another, then two."""
    plain = TensorSpec(ANY, ())
    yield (plain,) * count
    for changed in range(1, min(count, 3) + 1):
        for places in itertools.combinations(reversed(range(count)), changed):
            for others in itertools.product(FIXED, repeat=changed):
                roles = [plain] * count
                for place, other in zip(places, others, strict=True):
                    roles[place] = other
                yield tuple(roles)


def _shape_choices(count: int, draw: random.Random) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Shapes of so many tensors: all the same, then each of the others related to the first."""
    if count == 0:
        yield ()
        return
    for shape in SHAPES:
        yield (shape,) * count
    if count == 1:
        return
    related = list(itertools.product(range(_RELATIONS), repeat=count - 1))
    alike = [relation for relation in related if len(set(relation)) == 1]
    related = alike + draw.sample(related, min(len(related), 64))
    for relation in related:
        for shape in SHAPES[:7]:
            yield (shape, *(_related(shape, way) for way in relation))


_RELATIONS = 8


def _related(shape: tuple[int, ...], way: int) -> tuple[int, ...]:
    """A shape beside another: a row, a column, a channel, a number, the right side of a product, weights of a layer."""
    last, first = shape[-1:] or (1,), shape[:1] or (1,)
    channels = shape[1:2] or last
    return (
        last, first, channels, (), (*shape[:-2], *last, 5), (5, *last), (4, *channels, *((3,) * len(shape[2:]))), shape,
    )[way]  # fmt: skip


def _different(calls: list[Call]) -> list[Call]:
    """The calls that have most that those before them have not, and are plain."""
    facts = [_facts(call) for call in calls]
    cost = [_cost(call) for call in calls]
    met: Counter[Hashable] = Counter()
    left = sorted(range(len(calls)), key=lambda at: cost[at])
    chosen: list[Call] = []
    while left and len(chosen) < KEPT:
        best = (
            max(left, key=lambda at: sum(1 / (1 + met[fact]) ** 2 for fact in facts[at]) - cost[at])
            if chosen
            else left[0]
        )
        left.remove(best)
        chosen.append(calls[best])
        met.update(facts[best])
    return chosen


def _cost(call: Call) -> float:
    """How far a call is from plain: empty tensors, sizes of 1, more than 60 elements, dtypes of their own."""
    found = [spec for value in call.values() for spec in specs(value)]
    sizes = [size for spec in found for size in spec.shape]
    large = sum(max(math.log2(max(math.prod(spec.shape), 1)) - 6, 0) for spec in found)
    given = sum(spec.dtype != ANY for spec in found)
    return 0.6 * sizes.count(0) + 0.25 * sizes.count(1) + 0.4 * given + 0.1 * large + 0.02 * len(call)


def _facts(call: Call) -> frozenset[Hashable]:
    found: set[Hashable] = {("given", tuple(call))}
    shapes = [spec.shape for value in call.values() for spec in specs(value)]
    found.add(("ranks", tuple(map(len, shapes))))
    found.update(("beside", at, _relation(shapes[0], other)) for at, other in enumerate(shapes[1:]))
    for name, value in call.items():
        for spec in specs(value):
            found.add((name, "dtype", spec.dtype, spec.below is None or spec.below > 2))
            found.update((name, "size", min(size, 2)) for size in spec.shape)
            found.update((name, "odd", size % 2) for size in spec.shape if size > 4)
        if not any(specs(value)):
            found.add((name, repr(value)))
        elif isinstance(value, list | tuple):
            found.add((name, "length", len(value), None in value))
    way = tuple((name, value) for name, value in call.items() if isinstance(value, str | bool))
    return frozenset(found) | {(fact, way) for fact in found}  # by a word or a flag, an op is another one


def _relation(one: tuple[int, ...], other: tuple[int, ...]) -> Hashable:
    """How two shapes stand to each other: which of them is stretched, by dims or by sizes of 1."""
    pairs = list(zip(reversed(one), reversed(other), strict=False))
    stretched = any(a == 1 != b for a, b in pairs), any(b == 1 != a for a, b in pairs)
    return (len(one) > len(other)) - (len(one) < len(other)), stretched, all(a == b for a, b in pairs)
