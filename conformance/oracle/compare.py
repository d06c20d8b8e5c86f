"""The judgement: from what eager and the backend gave, to pass, mismatch or ill-conditioned, with the evidence.

In order, each step only on the numbers the one before did not settle:

1. structure, layout, shape, dtype; integers and bools exactly; floating numbers within the dtype's ULPs of eager's,
   zeros and NaN with their sign where each step of the program decides it;
2. the float64 run: the backend may be no further from it than eager is, within a factor and the ULPs, element by
   element, where inexact steps are given the room of the rounding model;
3. conditioning: what eager itself gives when its inputs move by one ULP, or what float64 gives when steps round
   differently, is ``ill-conditioned``; such a run is searched for (``perturbation.search``). Not so when the inputs lie
   exactly on the discontinuity (a tie to round, an edge of a domain): the function's value there is defined, and the
   backend has it wrong;
4. overflow: what some order of the steps gives where they leave the dtype's range is ``ill-conditioned`` too, and so
   is the NaN of a documented formula that eager's kernel loses.

All of it is done in rounds of growing cost (``Effort``), each with every choice that PyTorch leaves open (ties, signs
of vectors, factors of zero): a right answer by another choice is not to cost a search.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.execution.memory import find_stray_writes, known_writes
from torchstone.conformance.execution.verdict import EAGER_FURTHER, Kind, Outcome
from torchstone.conformance.oracle.ambiguity.factorizations import derivation
from torchstone.conformance.oracle.ambiguity.infinity_sign import infinity_sign_ambiguity
from torchstone.conformance.oracle.ambiguity.overwrites import overwrite_ambiguity
from torchstone.conformance.oracle.ambiguity.phases import phase_ambiguity
from torchstone.conformance.oracle.ambiguity.pivots import pivot_ambiguity
from torchstone.conformance.oracle.ambiguity.saturation import saturation_ambiguity
from torchstone.conformance.oracle.ambiguity.saved_statistics import statistics_ambiguity
from torchstone.conformance.oracle.ambiguity.ties import TieBreaking, breakings
from torchstone.conformance.oracle.ambiguity.zero_factor import zero_factor_ambiguity
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.oracle.exactness.nan_sign import nan_sign_ambiguity
from torchstone.conformance.oracle.finding import PASS, Finding, Observed
from torchstone.conformance.oracle.numbers import leaf_finding
from torchstone.conformance.oracle.overflow.conversions import undefined_elements
from torchstone.conformance.oracle.parts import parts_of, read_apart, taken
from torchstone.conformance.oracle.pytree import dense, flatten, paths, shape_of
from torchstone.conformance.oracle.reference.leaf import (
    Effort,
    Leaf,
)
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.oracle.reference.shared import referee_of
from torchstone.conformance.program.program import Program
from torchstone.conformance.program.tensor_storage import copy_tensors

_OPEN = Finding(Outcome.PASS, evidence={"rule": "equal up to what PyTorch leaves open"})


_MOST: ContextVar[Effort] = ContextVar("most effort", default=Effort.LONG_SEARCH)


@contextlib.contextmanager
def judging_quickly() -> Iterator[None]:
    """Judge by few runs: what is right by these is right. What is a mismatch by these may be ill-conditioned."""
    token = _MOST.set(Effort.FEW_RUNS)
    try:
        yield
    finally:
        _MOST.reset(token)


def judge(
    program: Program,
    args: tuple[Tensor, ...],
    expected: Observed,
    actual: Observed,
    *,
    seed: int | None = None,
    referee: Referee | None = None,
) -> Finding:
    """Compare a backend's run of ``program`` on ``args`` with eager's. ``args`` are pristine and stay so.

    ``seed`` is given of a program that draws at random, where the backend draws what eager does from that seed.
    ``referee``: that of the program on ``args``, with the runs made for an answer before this one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same_form = shape_of(expected.outputs) == shape_of(actual.outputs)
        parts = parts_of(program, args) if seed is None and same_form else []
        known = partial(known_writes, program, args)
        settled, stray, _ = find_stray_writes(args, expected.inputs, actual.inputs, known)
        if len(parts) < 2 or stray or not read_apart(program, parts, settled):
            return _judge_part(program, args, expected, actual, seed, referee)
        findings = []
        for places, part in parts:
            read = [name in part.inputs for name in program.inputs]
            own, wanted_inputs, given_inputs = (
                tuple(itertools.compress(tensors, read)) for tensors in (args, expected.inputs, actual.inputs)
            )
            wanted = Observed(taken(expected.outputs, places), wanted_inputs)
            given = Observed(taken(actual.outputs, places), given_inputs)
            inputs = [program.inputs.index(name) for name in part.inputs]
            findings.append(_at_place(places, inputs, _judge_part(part, own, wanted, given)))
            if findings[-1].outcome is Outcome.MISMATCH:
                break
        return _of_parts(findings)


def _at_place(places: list[int], inputs: list[int], finding: Finding) -> Finding:
    """The finding on a part, with the names that its results and inputs have in the whole program."""

    def whole(text: str) -> str:
        text = re.sub(r"^((?:mutated: )?input)\[(\d+)\]", lambda found: f"{found[1]}[{inputs[int(found[2])]}]", text)
        alone = len(places) == 1 and text.startswith("output")
        return f"output[{places[0]}]{text.removeprefix('output')}" if alone else text

    evidence = finding.evidence | ({"where": whole(finding.evidence["where"])} if "where" in finding.evidence else {})
    return replace(finding, message=whole(finding.message), evidence=evidence)


def _of_parts(findings: list[Finding]) -> Finding:
    """The finding on a program by those on its parts: the worst, or a pass with all that they tell."""
    for outcome in (Outcome.MISMATCH, Outcome.ILL_CONDITIONED):
        for finding in findings:
            if finding.outcome is outcome:
                return finding
    passed = [finding for finding in findings if finding.ok]
    if not passed:
        return findings[0]
    rules = sorted({rule for finding in passed for rule in finding.evidence.get("rule", "").split(", ") if rule})
    evidence = {key: value for finding in reversed(passed) for key, value in finding.evidence.items()}
    return Finding(Outcome.PASS, evidence=evidence | ({"rule": ", ".join(rules)} if rules else {}))


def _judge_part(
    program: Program,
    args: tuple[Tensor, ...],
    expected: Observed,
    actual: Observed,
    seed: int | None = None,
    referee: Referee | None = None,
) -> Finding:
    referee = referee or referee_of(program, args, seed=seed)
    choices: list[tuple[Referee, Observed, Observed]] | None = None
    for effort in (Effort.FEW_RUNS, Effort.ALL_RUNS):  # another choice that settles all is not to cost more runs
        finding, given = _beside_eager(referee, expected, actual, effort)
        if finding.kind is Kind.SHAPE:
            others = [_judge(*choice) for choice in statistics_ambiguity(referee, expected, given)]
            return next((_OPEN for beside in others if beside.ok), finding)
        if finding.kind not in (Kind.VALUE, Kind.MUTATION):  # what an input is left with is a number like any other
            return finding
        if _right_with_ties_broken(program, args, expected, given, seed, effort):
            return _OPEN
        if _right_by_factors(program, args, expected, given, seed, effort):
            return _OPEN
        if choices is None:
            choices = [choice for ambiguity in _AMBIGUITIES for choice in ambiguity(referee, expected, given)]
        others = [_judge(*choice, effort) for choice in choices]
        if any(beside.ok for beside in others):
            return _OPEN
        if effort >= _MOST.get():
            return finding
    # No search makes a number right, only ill-conditioned: what is so beside one choice needs no other.
    excused = [beside for beside in others if beside.outcome is Outcome.ILL_CONDITIONED]
    if excused:
        return excused[0]
    for effort in (Effort.SEARCH, Effort.LONG_SEARCH) if choices else (Effort.LONG_SEARCH,):
        finding, _ = _beside_eager(referee, expected, actual, effort)
        for beside in itertools.chain([finding], (_judge(*choice, effort) for choice in choices or [])):
            if beside.outcome is not Outcome.MISMATCH:
                return beside
    return finding


def _beside_eager(referee: Referee, expected: Observed, actual: Observed, effort: Effort) -> tuple[Finding, Observed]:
    """The finding, and the run it is of: that of the backend, but for what PyTorch does not define."""
    finding = _judge(referee, expected, actual, effort)
    return (finding, actual) if finding.ok else _judge_defined(referee, finding, expected, actual, effort)


_AMBIGUITIES = (
    nan_sign_ambiguity,
    infinity_sign_ambiguity,
    zero_factor_ambiguity,
    saturation_ambiguity,
    overwrite_ambiguity,
    pivot_ambiguity,
    phase_ambiguity,
)


def _judge_defined(
    referee: Referee, finding: Finding, expected: Observed, actual: Observed, effort: Effort
) -> tuple[Finding, Observed]:
    """The finding, and the run it is of, given that of the whole run: where eager converts numbers out of range, what
    does not depend on these is compared."""
    converts, masks = undefined_elements(referee.program, referee.pristine)
    if not converts:
        return finding, actual
    if masks is None:
        return Finding(Outcome.UNTESTED, message=f"{_UNDEFINED} decide sizes or arguments"), actual
    wanted, given = (flatten((run.outputs, run.inputs)) for run in (expected, actual))
    count = sum(int(mask.sum()) for mask in masks if mask is not None)
    if not count or finding.kind not in ("", Kind.VALUE, Kind.MUTATION):
        return finding, actual
    outputs = len(flatten(actual.outputs))
    for at, (mask, value) in enumerate(zip(masks, wanted, strict=True)):
        if mask is not None and bool(mask.any()):
            given[at] = torch.where(mask, dense(value), dense(given[at]))
    leaves = given[:outputs] if isinstance(actual.outputs, tuple | list | dict) else given[0]
    actual = Observed(leaves, tuple(given[outputs:]))
    expected = replace(expected, outputs=wanted[:outputs]) if leaves is not given[0] else expected
    finding = _judge(referee, expected, actual, effort)
    if finding.ok and all(mask is not None and mask.numel() and bool(mask.all()) for mask in masks[:outputs]):
        return Finding(Outcome.UNTESTED, message=f"{_UNDEFINED} decide all numbers"), actual
    return replace(finding, evidence=finding.evidence | {"undefined": count}), actual


_UNDEFINED = "conversions to integers out of range, which PyTorch leaves open,"


def _right_with_ties_broken(
    program: Program, args: tuple[Tensor, ...], expected: Observed, actual: Observed, seed: int | None, effort: Effort
) -> bool:
    """Whether the backend is right beside eager with another choice among equal elements."""
    tried: list[list[Tensor]] = []
    for ties in breakings(flatten(expected.outputs), flatten(actual.outputs)):
        inputs = copy_tensors(args)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]), ties:
                if seed is not None:
                    torch.default_generator.manual_seed(seed)
                outputs = program(*inputs)
        except Exception:  # what eager does not run under a mode, it has but one choice for
            return False
        if not ties.met:
            return False
        if any(all(map(torch.equal, ties.choices, before)) for before in tried):
            continue
        tried.append(ties.choices)
        referee = Referee(program, args, around=partial(TieBreaking, choices=ties.choices), seed=seed)
        if ties.made and _judge(referee, Observed(outputs, inputs), actual, effort).ok:
            return True
    return False


def _right_by_factors(
    program: Program, args: tuple[Tensor, ...], expected: Observed, actual: Observed, seed: int | None, effort: Effort
) -> bool:
    """Whether the backend is right in what stays the same whichever results are given."""
    derive = derivation(program)
    if derive is None:
        return False
    try:
        wanted = Observed(derive(copy_tensors(args), expected.outputs), expected.inputs)
        given = Observed(derive(copy_tensors(args), actual.outputs), actual.inputs)
    except Exception:  # factors that do not multiply
        return False
    return _judge(referee_of(program, args, derive, seed), wanted, given, effort).ok


def _judge(referee: Referee, expected: Observed, actual: Observed, effort: Effort = Effort.LONG_SEARCH) -> Finding:
    targets = [call.target for call in referee.program.every_call]
    rows, given = (list(paths(run.outputs, "output")) for run in (expected, actual))
    mismatch = _structure(rows, given, expected, actual)
    if mismatch is not None:
        return mismatch
    findings: list[Finding] = []
    for index, ((name, wanted), (_, value)) in enumerate(zip(rows, given, strict=True)):
        findings.append(leaf_finding(name, wanted, value, Leaf(referee, index, targets, effort=effort)))
        if findings[-1].outcome is Outcome.MISMATCH:
            return findings[-1]
    runs = (referee.pristine, expected.inputs, actual.inputs)
    settled, stray, evidence = find_stray_writes(*runs, lambda: referee.known_writes)
    if stray:
        return Finding(Outcome.MISMATCH, Kind.MUTATION, f"mutated: {stray}", evidence)
    for index in (index for index, done in enumerate(settled) if not done):
        wanted, value = expected.inputs[index], actual.inputs[index]
        untouched = same_bits(wanted, referee.pristine[index]) and not referee.known_writes[index]
        leaf = Leaf(referee, len(rows) + index, targets, strict=untouched, effort=effort)
        finding = leaf_finding(f"input[{index}]", wanted, value, leaf)
        if finding.kind:
            return replace(finding, kind=Kind.MUTATION, message=f"mutated: {finding.message}")
        findings.append(finding)
    for finding in findings:
        if finding.outcome is Outcome.ILL_CONDITIONED:
            return finding
    further_off = next((f.evidence[EAGER_FURTHER] for f in findings if EAGER_FURTHER in f.evidence), None)
    rules = {finding.evidence["rule"] for finding in findings if "rule" in finding.evidence}
    if not rules:
        return PASS
    evidence = {"rule": ", ".join(sorted(rules))} | ({EAGER_FURTHER: further_off} if further_off else {})
    return Finding(Outcome.PASS, evidence=evidence)


def _structure(
    rows: list[tuple[str, Any]], given: list[tuple[str, Any]], expected: Observed, actual: Observed
) -> Finding | None:
    if [name for name, _ in rows] == [name for name, _ in given]:
        return None
    what = f"expected {shape_of(expected.outputs)}, got {shape_of(actual.outputs)}"
    return Finding(Outcome.MISMATCH, Kind.STRUCTURE, f"the results have another structure: {what}")
