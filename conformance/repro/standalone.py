"""The part of a script that puts a program through a compiler's own path, with nothing of torchstone's.

Scripts carry the source of a function of ``compiler_paths``. Where torchstone has to run what the compiler makes, the
function ends with the lowering, and shows the failures up to there. A script exits with 1 when the failure shows
and with 0 when it does not; a compiler that dies or hangs does so in a process of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torchstone.conformance.escape import string_literal
from torchstone.conformance.execution.later_calls import LaterCall
from torchstone.conformance.execution.poison import FILL, OTHER_FILL
from torchstone.conformance.execution.verdict import Kind, Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.repro import later_calls

DEADLY = (Outcome.CRASH, Outcome.TIMEOUT, Outcome.OOM)
SECONDS = 120
CALLS = 5  # with each of two fillings


def compiler_path(name: str, verdict: Verdict | None) -> Callable[..., Any] | None:
    """Return the function that shows a backend's failure by itself, None if there is none."""
    from torchstone.conformance.repro.compiler_paths import LOWERINGS, PATHS

    early = verdict is not None and verdict.stage in (Stage.CAPTURE, Stage.LOWER)
    return PATHS.get(name) or (LOWERINGS.get(name) if early else None)


def kills_process(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.outcome in DEADLY


def subprocess_guard() -> list[str]:
    """Statements that do the rest of the script in another process and tell how that ends."""
    return [
        'if sys.argv[1:] != ["here"]:',
        "    try:",
        f'        code = subprocess.run([sys.executable, __file__, "here"], timeout={SECONDS}).returncode',
        "    except subprocess.TimeoutExpired as error:",
        "        sys.exit(str(error))",
        '    sys.exit(f"killed by signal {-code}" if code < 0 else code)',
        "",
    ]


def definitions(path: Callable[..., Any], case: Case, later: list[LaterCall]) -> list[str]:
    """The compiler's path, and the program as a module; arguments that it writes to are results of it."""
    lines = [*inspect.getsource(path).rstrip().splitlines(), "", ""]
    if any(call.after_companion for call in later):
        forward = ["    def forward(self, *args):", f"        return {later_calls.ANOTHER}(*args)"]
        lines += ["class AnotherModule(torch.nn.Module):", *forward, "", ""]
    lines.append("class Module(torch.nn.Module):")
    lines.append("    def forward(self, *args):")
    if not may_write_arguments(case):
        return [*lines, "        return program(*args)", "", ""]
    return [
        *lines,
        "        args = [arg.clone() for arg in args]",
        "        results = tree_leaves(program(*args))",
        "        return [leaf for leaf in results if not any(leaf is arg for arg in args)], args",
        "",
        "",
    ]


def may_write_arguments(case: Case) -> bool:
    """Whether the program may write to its arguments: in place, to an output, to running statistics."""
    return any(
        call.target.endswith(("_", "batch_norm", "instance_norm")) or "out" in call.kwargs
        for call in case.program.calls
    )


def comparison(
    path: Callable[..., Any],
    backend: str,
    case: Case,
    verdict: Verdict | None,
    closeness: tuple[float, float],
    later: list[LaterCall],
) -> list[str]:
    """Statements that compare what the compiler gives with eager."""
    from torchstone.conformance.repro.compiler_paths import LOWERINGS

    name = path.__name__
    run = "Module()" if may_write_arguments(case) else "program"
    eager = [
        'print("eager:", expected)',
        "expected = [leaf for leaf in tree_leaves(expected) if isinstance(leaf, torch.Tensor)]",
    ]
    exported = "exported = torch.export.export(Module(), inputs(), strict=False)"
    if path in LOWERINGS.values():
        return [f"expected = {run}(*inputs())", eager[0], exported, f"{name}(exported)"]
    rtol, atol = closeness
    check = [
        f"print({string_literal(repr(f'{backend}:'))}, actual)",
        f"torch.testing.assert_close(list(actual), expected, rtol={rtol!r}, atol={atol!r}, equal_nan=True)",
    ]
    compiled = [exported, f"compiled = {name}(exported)"]
    if later:
        other = later_calls.ANOTHER
        run_other = f"{name}(torch.export.export(AnotherModule(), {other}_inputs(), strict=False))(*{other}_inputs())"
        check = [f"expected = {run}(*expected_inputs)", *eager, "actual = compiled(*given)", *check]
        return [*compiled, "", "", *later_calls.statements(later, check, run_other)]
    return [
        f"expected = {run}(*inputs())",
        *eager,
        *compiled,
        *repeat_calls(["actual = compiled(*inputs())", *check], verdict),
    ]


def calls_differ(verdict: Verdict | None) -> bool:
    """Whether the failure is that calls on the same inputs differ."""
    return verdict is not None and verdict.kind == Kind.NONDETERMINISTIC


def repeat_calls(lines: list[str], verdict: Verdict | None) -> list[str]:
    """Statements of one call; of several, in memory filled with one byte or another, where calls differ."""
    if not calls_differ(verdict):
        return lines
    return [
        f"for byte in ({FILL}, {OTHER_FILL}) * {CALLS}:",
        "    ctypes.CDLL(None).mallopt(-6, byte)  # M_PERTURB: what memory holds that nobody has written to",
        *(f"    {line}" for line in lines),
    ]
