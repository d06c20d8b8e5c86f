"""Optimization profiles: for which sizes an engine is built, and which profile a call runs with.

A profile is a range (min, opt, max) for each symbol. So the shapes of all inputs agree in it, whatever sizes of theirs
are made of one symbol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from torchstone.compiler.diagnostics import GuardError, TorchstoneError, did_you_mean
from torchstone.compiler.ir.dims import Dim, Shape, evaluate, interval, renamed, symbols
from torchstone.compiler.ir.sizes import SizeRange

Range: TypeAlias = tuple[int, int, int]
Profile: TypeAlias = Mapping[str, Range]


def profiles_of(sizes: Mapping[str, SizeRange], asked: Any) -> tuple[Profile, ...]:
    """Return the profiles that a user asks for, by the names of sizes, else the one of the sizes that have a maximum.

    TorchstoneError says what is wrong with a profile that is asked for.
    """
    own = {s: (r.min, r.opt, r.max) for s, r in sizes.items() if r.opt is not None and r.max is not None}
    if asked is None:
        return (own,) if own else ()
    if not isinstance(asked, list | tuple) or not asked or not all(isinstance(p, Mapping) for p in asked):
        raise _refused(f'profiles: a list of dicts is needed, as [{{"n": (1, 8, 64)}}], got {asked!r}')
    profiles = tuple({**own, **_named(f"profile {i}", p, sizes)} for i, p in enumerate(asked))
    for i, profile in enumerate(profiles):
        for s, size in sizes.items():
            if s not in profile:
                raise _refused(
                    f'profile {i} says nothing of {size.name}, which has no max: add "{size.name}": (min, opt, max), '
                    f'or give Dim("{size.name}") a max'
                )
    return profiles


def check_example(profiles: Sequence[Profile], sizes: Mapping[str, SizeRange], example: Mapping[str, int]) -> None:
    """TorchstoneError unless a profile has the sizes of the example."""
    inside = [all(s not in p or p[s][0] <= n <= p[s][2] for s, n in example.items()) for p in profiles]
    if profiles and not any(inside):
        names = {s: sizes[s].name for s in example if s in sizes}
        given = ", ".join(f"{name} = {example[s]}" for s, name in names.items())
        raise _refused(f"no profile has the sizes of the example, {given}: {_told(profiles, names)}")


def _named(which: str, asked: Mapping[str, Any], sizes: Mapping[str, SizeRange]) -> dict[str, Range]:
    """Check one profile by names, and return it by symbols."""
    by_name = {size.name: s for s, size in sizes.items()}
    out: dict[str, Range] = {}
    for name, given in asked.items():
        if name not in by_name:
            known = ", ".join(by_name) or "none: dynamic_shapes or mark_dynamic says which are"
            raise _refused(f'{which}: no dynamic size "{name}"{did_you_mean(str(name), by_name)}; there is {known}')
        if not isinstance(given, list | tuple) or len(given) != 3 or any(type(n) is not int for n in given):
            raise _refused(f"{which}: {name} needs three ints, (min, opt, max), got {given!r}")
        low, best, high = given
        if not 0 <= low <= best <= high:
            raise _refused(f"{which}: {name} needs 0 <= min <= opt <= max, got min {low}, opt {best} and max {high}")
        bounds = sizes[by_name[name]]
        if low < bounds.min or (bounds.max is not None and high > bounds.max):
            wide = f"{bounds.min} to {'any' if bounds.max is None else bounds.max}"
            raise _refused(f"{which}: {name} is {low} to {high}, and its Dim takes {wide} only")
        out[by_name[name]] = low, best, high
    return out


def _refused(message: str) -> TorchstoneError:
    return TorchstoneError(message, stage="lower")


def _told(profiles: Sequence[Profile], names: Mapping[str, str]) -> str:
    def one(profile: Profile) -> str:
        return ", ".join(f"{name} {profile[s][0]} to {profile[s][2]}" for s, name in names.items() if s in profile)

    return "; ".join(f"profile {i} takes {one(p)}" for i, p in enumerate(profiles))


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a network: its name there, what the graph calls it, and its sizes."""

    name: str
    argument: str
    shape: Shape

    @property
    def dynamic(self) -> bool:
        return any(not isinstance(d, int) for d in self.shape)


Corners: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
Shapes: TypeAlias = dict[str, Corners]  # the min, opt and max shape of each dynamic input


@dataclass(frozen=True, slots=True)
class Ranges:
    """The profiles of one engine.

    ``fixed`` are those of the sizes that have a range. A size without one makes a single profile that grows: it runs
    from the least size seen to twice the greatest, and its optimum is that of the call that it was last widened for.
    """

    inputs: Sequence[Input]
    fixed: Sequence[Profile] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    grown: Mapping[str, Corners] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether nothing has to be seen before an engine can be built."""
        used = {s for i in self.inputs for d in i.shape for s in symbols(d)}
        return bool(self.fixed) and all(used <= profile.keys() for profile in self.fixed)

    @property
    def shapes(self) -> list[Mapping[str, Corners]]:
        """The shapes of each profile."""
        return [_shapes(self.inputs, p) for p in self.fixed] if self.complete else [self.grown] if self.grown else []

    def choose(self, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
        """Return the profile that has these sizes, the one of the nearest optimum if several do; None: none does."""
        found = [(_distance(p, shapes), i) for i, p in enumerate(self.shapes) if _inside(p, shapes)]
        return min(found)[1] if found else None

    def widened(self, shapes: Mapping[str, tuple[int, ...]]) -> Ranges:
        """Return these with a profile that is wide enough for a call. GuardError when all ranges are fixed."""
        if self.complete:
            raise GuardError(self._misfit(shapes))
        profile = self.fixed[0] if len(self.fixed) == 1 else {}
        grown: Shapes = {}
        for i in (i for i in self.inputs if i.dynamic):
            shape = shapes[i.name]
            low, _, high = self.grown.get(i.name, (shape, shape, (0,) * len(shape)))
            grown[i.name] = _transposed(
                _range(d, profile) if symbols(d) <= profile.keys() else (min(a, s), s, b if s <= b else 2 * s)
                for d, s, a, b in zip(i.shape, shape, low, high, strict=True)
            )
        return replace(self, grown=grown)

    def _misfit(self, shapes: Mapping[str, tuple[int, ...]]) -> str:
        """Say which size is in no profile; if each is in some, then all that matter."""
        profiles = self.shapes
        places = [
            (i, axis, dim, shapes[i.name][axis], [(p[i.name][0][axis], p[i.name][2][axis]) for p in profiles])
            for i in self.inputs
            for axis, dim in enumerate(i.shape)
            if not isinstance(dim, int)
        ]
        lonely = [p for p in places if not any(low <= p[3] <= high for low, high in p[4])]
        said = [
            f"dim {axis} of %{i.argument}, {renamed(dim, self.names)}, is {size}, and the profiles take "
            + " or ".join(dict.fromkeys(f"{low} to {high}" for low, high in ranges))
            for i, axis, dim, size, ranges in lonely or places
        ]
        return "; ".join(said) + ("" if lonely else ": no profile takes all of them")


def _shapes(inputs: Sequence[Input], profile: Profile) -> Shapes:
    return {i.name: _transposed(_range(d, profile) for d in i.shape) for i in inputs if i.dynamic}


def _range(dim: Dim, profile: Profile) -> Range:
    low, high = interval(dim, {s: (low, high) for s, (low, _, high) in profile.items()})
    return max(low, 0), evaluate(dim, {s: opt for s, (_, opt, _) in profile.items()}), high


def _transposed(ranges: Iterable[Range]) -> Corners:
    low, opt, high = zip(*ranges, strict=True)
    return low, opt, high


def _inside(profile: Mapping[str, Corners], shapes: Mapping[str, tuple[int, ...]]) -> bool:
    return all(
        low <= size <= high
        for name, (lows, _, highs) in profile.items()
        for low, size, high in zip(lows, shapes[name], highs, strict=True)
    )


def _distance(profile: Mapping[str, Corners], shapes: Mapping[str, tuple[int, ...]]) -> int:
    return sum(
        abs(size - best) for name, (_, opt, _) in profile.items() for size, best in zip(shapes[name], opt, strict=True)
    )
