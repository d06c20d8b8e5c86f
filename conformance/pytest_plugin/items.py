"""The items: a case on a backend, run when pytest comes to it, and its verdict as pytest's outcome."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import file_name, one_line, replay_command, shell_command, visible
from torchstone.conformance.escape import log_lines as safe
from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.pytest_plugin.keys import OUTCOME, SELECTION, SUITE
from torchstone.conformance.pytest_plugin.options import PluginOptions, mark_name
from torchstone.conformance.pytest_plugin.session import session_of
from torchstone.conformance.pytest_plugin.user_cases import SOURCE as OWN
from torchstone.conformance.pytest_plugin.user_cases import DeclaredCase, OwnCaseError

SKIPPED = frozenset({Outcome.UNSUPPORTED, Outcome.UNTESTED, Outcome.FALLBACK, Outcome.ILL_CONDITIONED})
"""Outcomes that are neither a failure nor a pass."""

LABELS = ("source", "op", "dtype", "variant")


class CaseItem(pytest.Item):
    """One case on one backend. ``torchstone_place``: the file and line that a skip is reported at."""

    backend: str
    case_id: str
    torchstone_place: tuple[str, int | None]

    def about(self, backend: str, case_id: str) -> None:
        """Say what the item tries, and mark it with that."""
        self.backend, self.case_id = backend, case_id
        labels = dict(zip(LABELS, _parts(case_id), strict=True))
        self.add_marker(pytest.mark.torchstone(backend=backend, **labels))
        for label, value in {"backend": backend, **labels}.items():
            self.add_marker(_mark(self.config, label, value))

    def case(self) -> Case | Untested:
        raise NotImplementedError

    def again(self, case: Case) -> str:
        """The command that tries the case again."""
        raise NotImplementedError

    def runtest(self) -> None:
        trouble = ""
        with warnings.catch_warnings():  # the suite's own are no matter of the project whose tests these are
            warnings.simplefilter("ignore")
            try:
                case = self.case()
                verdict = session_of(self.config).verdict(self.backend, case)
            except (InputError, OwnCaseError) as error:
                trouble = str(error)
        if trouble:
            pytest.fail(safe(trouble), pytrace=False)
        properties = {"backend": self.backend, "stage": verdict.stage, "kind": verdict.kind, "message": verdict.message}
        self.user_properties.append((OUTCOME, str(verdict.outcome)))
        self.user_properties += [(f"torchstone_{name}", str(value)) for name, value in properties.items()]
        self._end(case, verdict)

    def _end(self, case: Case | Untested, verdict: Verdict) -> None:
        outcome = verdict.outcome
        file = session_of(self.config).expectations.get(self.backend)
        source, op, dtype, _, variant = _fields(self.case_id)
        row = file.find(self.case_id, source, op, dtype, variant) if file is not None else None
        if file is not None and row is not None and outcome is not Outcome.HARNESS_ERROR:
            reason = visible(f"{row.reason} {row.issue}".strip())
            if outcome not in row.outcomes:
                wanted = f"{' or '.join(row.outcomes)}, as expected by {file.path}:{row.line} ({reason})"
                text = failure_text(case, verdict, self.again(case)) if isinstance(case, Case) else _reason(verdict)
                pytest.fail(f"[strict] {outcome}, and not {wanted}\n{text}", pytrace=False)
            if verdict.failed:
                pytest.xfail(f"{outcome}: {reason}")  # does nothing under --runxfail
        if verdict.failed:
            assert isinstance(case, Case)
            pytest.fail(failure_text(case, verdict, self.again(case)), pytrace=False)
        if outcome in SKIPPED:
            pytest.skip(f"{outcome}: {_reason(verdict)}")

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return (self.path, self.torchstone_place[1], self.title())

    def title(self) -> str:
        """What stands over the failure."""
        return self.name


class SuiteItem(CaseItem):
    """A case of one of the suite's sources."""

    def case(self) -> Case | Untested:
        return session_of(self.config).entry(self.case_id)

    def title(self) -> str:
        return f"{self.case_id} on {self.backend}"  # not the end of the node id: pytest would change the dots in it

    def again(self, case: Case) -> str:
        return _replay(self.config, case.id, self.backend)


class OwnItem(CaseItem):
    """A case that a project declares with ``@torchstone.case``."""

    declared: DeclaredCase

    def case(self) -> Case | Untested:
        from torchstone.conformance.variants.apply import apply

        _, _, dtype, index, variant = _fields(self.case_id)
        return apply(self.declared.case(dtype, int(index)), variant)

    def again(self, case: Case) -> str:
        cache = getattr(self.config, "cache", None)
        if cache is None:  # pytest was told to keep nothing
            return shell_command(["pytest", self.nodeid, "--torchstone-backend", self.backend])
        path = cache.mkdir("torchstone") / f"{file_name(self.nodeid)}.safetensors"
        case.save(path)
        return _replay(self.config, str(path), self.backend)


class Suite(pytest.Collector):
    """Every case that the options select, backend by backend. The same in every process: sources are seeded."""

    def collect(self) -> list[pytest.Item]:
        chosen = self.config.stash[SELECTION]
        pairs = chosen.picked or self._pairs(chosen)
        try:
            return [self._item(backend, case_id) for backend, case_id in pairs]
        except InputError as error:
            raise self.CollectError(f"torchstone: {error}") from error

    def _pairs(self, chosen: PluginOptions) -> Iterator[tuple[str, str]]:
        from torchstone.conformance.sources import iterate, select
        from torchstone.conformance.variants.registry import DEFAULT

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ops = select(chosen.sources, chosen.ops)
            entries = [
                (entry.id, isinstance(entry, Case))
                for entry in iterate(ops, list(chosen.dtypes) if chosen.dtypes else None, chosen.limit)
            ]  # ids, not cases: what a process does not run it need not hold
        for backend in chosen.backends:
            for name, is_case in entries:
                for variant in chosen.variants if is_case else (DEFAULT,):
                    yield backend, name if variant == DEFAULT else f"{name}:{variant}"

    def _item(self, backend: str, case_id: str) -> pytest.Item:
        item = SuiteItem.from_parent(self, name=case_id, nodeid=f"{SUITE}::{backend}::{case_id}")
        item.torchstone_place = (str(self.path), None)
        item.about(backend, case_id)
        return item


def own_items(collector: Any, name: str, declared: DeclaredCase, chosen: PluginOptions | None) -> list[pytest.Item]:
    """The items of a declared function: on every backend, on eager alone when none is asked for."""
    if not isinstance(collector, pytest.Module):
        raise collector.CollectError(f"{name}: @torchstone.case is for functions of a module, not of a class")
    marks = list(getattr(declared.function, "pytestmark", ()))
    if any(mark.name in ("parametrize", "usefixtures") for mark in marks):
        raise collector.CollectError(f"{name}: a case takes no fixtures or parameters; give inputs=[…] instead")
    chosen = chosen or PluginOptions(("eager",), own_dtypes=None)
    dtypes = [dtype for dtype in declared.dtypes if chosen.own_dtypes is None or dtype in chosen.own_dtypes]
    line = declared.function.__code__.co_firstlineno - 1
    items: list[pytest.Item] = []
    for backend in chosen.backends:
        for dtype in dtypes:
            for index in range(len(declared.inputs)):
                for variant in chosen.variants:
                    tail = "" if variant == "default" else f"-{variant}"
                    item = OwnItem.from_parent(collector, name=f"{name}[{backend}-{dtype}-{index}{tail}]")
                    item.declared = declared
                    item.torchstone_place = (str(collector.path), line)
                    item.own_markers.extend(marks)
                    item.about(backend, f"{OWN}:{declared.name}:{dtype}:{index}{tail.replace('-', ':', 1)}")
                    items.append(item)
    return items


def failure_text(case: Case, verdict: Verdict, again: str) -> str:
    """What a failure shows: the verdict, what was asked, the evidence, and the command that asks again."""
    message, *more = verdict.message.splitlines() or [""]
    kind = f" ({verdict.kind})" if verdict.kind else ""
    lines = [f"{verdict.outcome}{kind} at stage {verdict.stage}: {message}", *more, ""]
    lines += [f"case     {verdict.case_id} on {verdict.backend}, {verdict.seconds:.3f} s"]
    for name, tensor in case.inputs.items():
        layout = "" if tensor.is_contiguous() else f" strides {tuple(tensor.stride())}"
        lines.append(f"input    {name}: {str(tensor.dtype)[6:]}{list(tensor.shape)}{layout}")
    lines += [f"program  {line}" for line in str(case.program).splitlines()]
    for name, value in verdict.evidence.items():
        text = value if isinstance(value, str) else json.dumps(value)
        if len(text) > 100 and not isinstance(value, str):
            text = json.dumps(value, indent=2)
        first, *rest = text.splitlines() or [""]
        lines += [f"evidence {name}: {first}" if not rest else f"evidence {name}:"]
        lines += [f"         {line}" for line in ([first, *rest] if rest else [])]
    return safe("\n".join(lines)) + f"\n\nagain    {again}"


def _reason(verdict: Verdict) -> str:
    reason = one_line(verdict.message)
    if verdict.outcome is Outcome.FALLBACK:
        return reason or "right, but the backend did not execute the op itself"
    return reason


def _replay(config: pytest.Config, what: str, backend: str) -> str:
    timeout = config.option.torchstone_timeout
    return replay_command(what, backend, *(["--timeout", f"{timeout:g}"] if timeout != 60 else []))


def _fields(case_id: str) -> list[str]:
    """source, op, dtype, index, variant"""
    fields = case_id.split(":")
    if len(fields) not in (4, 5):
        raise InputError(f'"{case_id}" is not a case id; they look like opinfo:softmax:float32:0')
    return fields if len(fields) == 5 else [*fields, "default"]


def _parts(case_id: str) -> tuple[str, str, str, str]:
    source, op, dtype, _, variant = _fields(case_id)
    return source, op, dtype, variant


def _mark(config: pytest.Config, label: str, value: str) -> pytest.MarkDecorator:
    """The mark, registered, so that --strict-markers knows it."""
    known = session_of(config).marks
    name = mark_name(label, value)
    if name not in known:
        config.addinivalue_line("markers", f"{name}: a case of {label} {value}.")
        known[name] = getattr(pytest.mark, name)
    return known[name]
