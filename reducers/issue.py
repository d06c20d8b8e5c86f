"""``issue.md`` of a finding: the text of an issue, to be pasted into a compiler's tracker as it is."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import torch

from torchstone.conformance.backends.registry import describe_backend, load
from torchstone.conformance.escape import markdown, markdown_block, replay_command
from torchstone.conformance.execution.machine import processor
from torchstone.conformance.execution.verdict import Kind, Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.reducers.failure import Reduction

MOST = 50_000
"""Characters of a script that are pasted: trackers take some 65,000 in all."""

_ENDS = {Outcome.CRASH: "ends the process", Outcome.TIMEOUT: "hangs", Outcome.OOM: "runs out of memory"}
_WRONG = {
    Kind.VALUE: "wrong value",
    Kind.DTYPE: "wrong dtype",
    Kind.SHAPE: "wrong shape",
    Kind.STRUCTURE: "wrong structure of results",
    Kind.MUTATION: "wrong write to an argument",
    Kind.ALIASING: "results share memory that should not",
    Kind.NONDETERMINISTIC: "other results in each call",
    Kind.LATER_CALL: "wrong in a call after the first",
    Kind.DISTRIBUTION: "random numbers of another distribution",
    Kind.ACCEPTED: "takes what eager refuses",
    Kind.LEAK: "keeps memory in each call",
    Kind.DEVICE: "result on another device",
}
# What is told of the worst element, by the key in a verdict's evidence.
_NUMBERS = (
    ("where", "where"), ("index", "index"), ("expected", "eager"), ("actual", "compiled"), ("float64", "float64"),
    ("ulps", "ULPs off"),
)  # fmt: skip


def issue(reduction: Reduction, script: str) -> str:
    """Return the issue as Markdown. What comes from the case, the backend or the verdict is escaped or in a block.

    ``script`` is the name of the file with the script, which is named where it is too long to be pasted.
    """
    verdict = reduction.verdict
    stage = (
        "Compared with eager PyTorch:" if verdict.stage is Stage.COMPARE else f"It fails at the stage {verdict.stage}:"
    )
    lines = [f"# {title(reduction.case, verdict)}", "", stage, ""]
    lines += [markdown_block(verdict.message), ""]
    if numbers := [(label, verdict.evidence[key]) for key, label in _NUMBERS if key in verdict.evidence]:
        lines += ["| worst element | |", "| --- | --- |"]
        lines += [f"| {label} | {markdown(value)} |" for label, value in numbers]
        lines.append("")
    if reduction.blame:
        lines += [f"The first stage that shows it: {markdown(reduction.blame)}.{_attached(reduction)}", ""]
    lines += ["## To reproduce", ""]
    text = reduction.script
    if len(text) <= MOST:
        lines += [f"Save this as `{script}` and run it. It exits with 1 where the failure shows.", ""]
        lines += [markdown_block(text.rstrip(), MOST, "python"), ""]
    else:
        lines += [f"Run `{script}`, which is attached. It exits with 1 where the failure shows.", ""]
    lines += ["## Versions", ""]
    lines += [f"- {markdown(name)} {markdown(version)}" for name, version in versions(verdict).items()]
    lines += ["", "Found by torchstone. With the case that is attached:", ""]
    lines += [markdown_block(replay_command("case.safetensors", reduction.backend))]
    return "\n".join(lines) + "\n"


def text_name(side: str) -> str:
    """Return what the file is called that has the program ``before`` the stage to blame, or ``after`` it."""
    return f"{side}.txt"


def _attached(reduction: Reduction) -> str:
    told = [f"{side} it (`{text_name(side)}`, {markdown(stage)})" for side, (stage, _) in reduction.texts.items()]
    return f" Attached is the program {' and '.join(told)}." if told else ""


def title(case: Case, verdict: Verdict) -> str:
    """Return one line that names the ops, the dtypes and the symptom."""
    ops = ", ".join(dict.fromkeys(call.target.removeprefix("torch.ops.") for call in case.program.calls)) or "identity"
    dtypes = ", ".join(dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for tensor in case.args))
    return markdown(f"{ops}{f' ({dtypes})' if dtypes else ''}: {symptom(verdict)}")


def symptom(verdict: Verdict) -> str:
    """Return what goes wrong, in a few words."""
    if verdict.outcome is Outcome.MISMATCH:
        return next((words for kind, words in _WRONG.items() if kind == verdict.kind), "wrong result")
    if verdict.outcome in _ENDS:
        return f"the compiler {_ENDS[verdict.outcome]} (stage {verdict.stage})"
    first = next(iter(verdict.message.splitlines()), "")
    return first or f"{verdict.outcome} (stage {verdict.stage})"


def versions(verdict: Verdict) -> Mapping[str, Any]:
    """Return what the failure was seen with: of the backend what can be told here, of the machine what matters."""
    try:
        told = describe_backend(load(verdict.backend))["versions"]
    except Exception:  # anything: it runs in an interpreter of its own, and what is here may be no whole
        told = {}
    return {
        **told,
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor(),
    }
