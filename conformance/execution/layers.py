"""What the layers of a compiler give of a case that it computes wrongly: an exported model by an evaluator, say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torchstone.conformance.custom.apart import Died, Made, Steps, stream
from torchstone.conformance.execution.same_failure import same_failure
from torchstone.conformance.execution.verdict import CORRECT, FAILURES, Outcome
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.program.case import Case

SECONDS = 10.0
"""How long a layer may take. Each is asked in a fork, so that one that crashes or has no end changes no verdict."""

LAYERS = "layers"
"""The key in the evidence: by the name of each layer that was asked, what is run by whom, and what it gives."""


def tell_layers(
    finding: Finding, case: Case, backend: Any, compare: Callable[[Case, Any], tuple[Any, Finding]]
) -> Finding:
    """Return the finding of a wrong result with what each cheap layer of the backend gives; any other as it is."""
    if finding.outcome is not Outcome.MISMATCH or not hasattr(backend, "layers"):
        return finding
    asked = [layer for layer in backend.layers() if layer.cheap]

    def make(steps: Steps) -> Iterator[Made]:
        for layer in asked:
            if steps.begin(layer.name):
                _, found = compare(case, layer)
                same = same_failure(found, finding)
                yield Made(layer.name, [str(found.outcome), same, found.message[:200]])

    told = {layer.name: f"{layer.what}: does not end" for layer in asked}
    for made in stream(make, SECONDS):
        layer = next(one for one in asked if one.name == (made.step if isinstance(made, Died) else made.key))
        told[layer.name] = f"{layer.what}: {_words(made)}"
    return replace(finding, evidence=finding.evidence | {LAYERS: told}) if told else finding


def _words(made: Made | Died) -> str:
    if isinstance(made, Died):
        return f"the process was {made.how}"
    outcome, same, message = made.told
    if same:
        return f"gives the same failure: {message}"
    if Outcome(outcome) in CORRECT:
        return "is right"
    return f"fails otherwise: {message}" if Outcome(outcome) in FAILURES else f"cannot tell: {message}"
