"""What is asked of the plugin: its options, checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.pytest_plugin.user_cases import SOURCE as OWN

if TYPE_CHECKING:
    from torchstone.conformance.expectations import ExpectationFile


@dataclass(frozen=True)
class PluginOptions:
    """The cases to collect, and how to run them. ``picked``: (backend, case id)s given as node ids, and no others."""

    backends: tuple[str, ...]
    sources: tuple[str, ...] = ()
    ops: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None  # of the suite; None for all
    own_dtypes: tuple[str, ...] | None = None  # which of those that own cases declare; None for all
    variants: tuple[str, ...] = ("default",)
    limit: int | None = None
    timeout: float = 60.0
    isolate: bool = True
    expect: tuple[str, ...] = ()
    picked: tuple[tuple[str, str], ...] = field(default=())

    @property
    def suite(self) -> bool:
        """Whether there is anything but own cases."""
        return bool(self.sources or self.picked)

    def marks(self) -> Iterator[str]:
        """What -m may name, whether or not there is such a case; a mark for each op comes with its cases."""
        for label, names in ("backend", self.backends), ("source", self.sources), ("variant", self.variants):
            for name in names:
                yield f"{mark_name(label, name)}: a case of {label} {name}."
        for name in self.dtypes or ():
            yield f"{mark_name('dtype', name)}: a case of dtype {name}."

    def read_expectations(self) -> dict[str, ExpectationFile]:
        """The expectations by backend. Raises ``InputError``."""
        if not self.expect:
            return {}
        from torchstone.conformance.expectations import files_by_backend, load_expectations

        return files_by_backend([load_expectations(Path(path)) for path in self.expect], self.backends, "pytest")


def mark_name(label: str, value: str) -> str:
    """The name of the mark of what has this value: ``op_nn_functional_softmax``."""
    return re.sub(r"\W+", "_", f"{label}_{value.partition('=')[0]}")


def read_options(option: Any, picked: Sequence[tuple[str, str]], *, quick: bool = False) -> PluginOptions:
    """Check the options. ``quick`` leaves out what another process has checked. Raises ``InputError``."""
    from torchstone.conformance.backends import check_backend_name, load
    from torchstone.conformance.backends.registry import describe_backend
    from torchstone.conformance.runner.preflight import preflight
    from torchstone.conformance.sources import SOURCES, check_ops

    backends = tuple(dict.fromkeys([*option.torchstone_backend, *(backend for backend, _ in picked)]))
    if not backends:
        raise InputError("give at least one --torchstone-backend; `torchstone backends` lists them")
    if option.torchstone_limit is not None and option.torchstone_limit < 1:
        raise InputError(f"--torchstone-limit is a number from 1, got {option.torchstone_limit}")
    if not option.torchstone_timeout > 0:
        raise InputError(f"--torchstone-timeout is a number of seconds, got {option.torchstone_timeout:g}")
    sources = [] if picked else option.torchstone_source or ["opinfo"]
    for name in sources:
        if name.partition("=")[0] not in SOURCES and name != OWN:
            raise UnknownName("source", name, [*SOURCES, OWN])
    for name in backends:
        check_backend_name(name)
    variants = _variants(option.torchstone_variant)
    dtypes = _dtypes(option.torchstone_dtype)
    if OWN not in sources and option.torchstone_op:
        check_ops(sources, option.torchstone_op)
    chosen = PluginOptions(
        backends,
        tuple(name for name in dict.fromkeys(sources) if name != OWN),
        tuple(option.torchstone_op) or None,
        dtypes if option.torchstone_dtype else ("float32",),
        dtypes,
        variants,
        option.torchstone_limit,
        option.torchstone_timeout,
        option.torchstone_isolate,
        tuple(option.torchstone_expect),
        tuple(dict.fromkeys(picked)),
    )
    if quick:
        return chosen
    if chosen.expect:
        chosen.read_expectations()
    for name in backends:
        state = preflight(name) if option.torchstone_isolate else describe_backend(load(name))
        if not state.get("ok", True):
            how = f"; install it with: {state['install']}" if state["install"] else ""
            raise InputError(f'backend "{name}" cannot be used here: {state["reason"]}{how}')
    return chosen


def _variants(wanted: Sequence[str]) -> tuple[str, ...]:
    if not wanted:
        return ("default",)
    from torchstone.conformance.variants.registry import VARIANTS

    for name in wanted:
        if name not in (*VARIANTS, "all"):
            raise UnknownName("variant", name, [*VARIANTS, "all"])
    if "all" in wanted:
        return tuple(VARIANTS.usable())
    for name in wanted:
        VARIANTS.load(name)
    return tuple(dict.fromkeys(wanted))


def _dtypes(wanted: Sequence[str]) -> tuple[str, ...] | None:
    if not wanted or "all" in wanted:
        return None
    from torchstone.conformance.program.literals import DTYPES

    for name in wanted:
        if name not in DTYPES:
            raise UnknownName("dtype", name, [*DTYPES, "all"])
    return tuple(dict.fromkeys(wanted))
