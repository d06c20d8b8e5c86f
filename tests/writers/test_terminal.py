"""What reaches a terminal and the files beside it: listings, live lines, pytest's reports, reductions, findings."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from markdown_it import MarkdownIt

from torchstone import cli
from torchstone.cli import module_reduction, output
from torchstone.cli import output as say
from torchstone.cli.commands import fuzz as fuzz_command
from torchstone.cli.commands import reduce as reduce_command
from torchstone.cli.commands import replay as replay_command
from torchstone.cli.errors import report_error
from torchstone.cli.progress import LiveText, Progress
from torchstone.conformance.controls import results as controls
from torchstone.conformance.custom.checks import Complaint
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.escape import log_lines, visible
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.mutants.syntactic.judgements import Judged, Judgement
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.pytest_plugin.items import failure_text
from torchstone.fuzz import selftrial
from torchstone.fuzz.alone import OpReport
from torchstone.fuzz.campaign import CampaignOptions, Tally
from torchstone.fuzz.findings import FuzzFinding
from torchstone.fuzz.page import page
from torchstone.fuzz.selftrial import mutation_results
from torchstone.reducers import write
from torchstone.reducers.batch import Failure
from torchstone.reducers.engine import Reduced
from torchstone.reducers.failure import Reduction
from torchstone.reducers.mlir import write as of_modules
from torchstone.reducers.mlir.pipeline import Entry
from torchstone.reducers.mlir.shrink import Subject
from torchstone.reducers.mlir.trial import Outcome as Ended
from torchstone.reducers.script_run import ScriptRun
from torchstone.reducers.signature import signature

from .corpus import TEXTS, ran
from .test_escape import commands, quiet

SECTIONS = ("What it takes", "What was wrong", "What was asked")
CASE = Case(
    Program(("x",), (Call("torch.neg", (Ref("x"),), {}, "v0"),), Ref("v0")), {"x": torch.ones(2)}, "s", "o", "d"
)  # fmt: skip


def hostile(text: str) -> tuple[Case, Verdict]:
    call = Call("torch.div", (Ref("x"), text), {"rounding_mode": text, text: {text: 1}}, "v")
    program = Program(("x",), (call,), Ref("v"))
    case = replace(CASE, program=program, source=text, op=text, dtype=text, variant=text)
    evidence = {text: text, "list": [text] * 40, "dict": {text: "x" * 100}}
    return case, Verdict(case.id, text, text, text, text, text, Stage.RUN, Outcome.ERROR, text, text, evidence)


def reduction(text: str) -> Reduction:
    case, verdict = hostile(text)
    return Reduction(case, case, text, signature(verdict), verdict, (), 1, 0.1, True, True)


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    found = capsys.readouterr()
    text = found.out + found.err
    assert quiet(text) and not commands(text) and not ran()
    return text


def says(text: str, tmp_path: Path) -> None:
    say.say(text)
    say.warn(text)


def errors(text: str, tmp_path: Path) -> None:
    for error in (InputError(text), UnknownName("op", text, [text, "add"]), OSError(2, text, text), ValueError(text)):
        assert report_error(error) in (1, 2)


def replayed(text: str, tmp_path: Path) -> None:
    replay_command.show_verdict(*hostile(text))


def reduced(text: str, tmp_path: Path) -> None:
    folder = tmp_path / "reduced"
    write.write_reduction(reduction(text), folder)
    reduce_command._show(reduction(text), Path("folder"), ScriptRun(1, False, text))
    issue = MarkdownIt("commonmark").enable("table").parse((folder / write.ISSUE).read_text(encoding="utf-8"))
    assert [token.tag for token in issue if token.type == "heading_open"] == ["h1", "h2", "h2"]
    assert "html_block" not in {token.type for token in issue}
    script = [token.content.rstrip("\n") for token in issue if token.type == "fence" and token.info == "python"]
    assert script == [log_lines(reduction(text).script.rstrip())]
    told = json.loads((folder / write.SUMMARY).read_text(encoding="utf-8"))
    words = shlex.split(told["replay"], comments=True)
    assert words == (["torchstone", "replay", write.CASE, "--backend", text] if visible(text) == text else [])
    compile((folder / write.SCRIPT).read_text(encoding="utf-8"), "script", "exec")
    kept = write.add_to_corpus(reduction(text), tmp_path / "kept")
    assert kept.parent == tmp_path / "kept"


def found(text: str, tmp_path: Path) -> None:
    case, verdict = hostile(text)
    finding = FuzzFinding(signature(verdict), case, verdict, reduction(text), [text])
    failure = Failure(text, signature(verdict), text, text, (text,))
    for name in (finding.name, failure.name):
        assert (tmp_path / name).resolve().parent == tmp_path.resolve() and len(name) <= 120
        (tmp_path / name).mkdir(exist_ok=True)
    tally = Tally(outcomes=Counter({text: 1}))
    tally.findings.add(finding)
    tally.reducing = text
    say.warn(fuzz_command.Progress.line(tally))
    fuzz_command._show(CampaignOptions(text, 1.0, 1, Path("out")), tally)


def trials(text: str, tmp_path: Path) -> None:
    one = selftrial.TrialResult(text, text, text or "-", text, text, text, text, 1, 1.0, [text])
    say.say(selftrial.markdown_tables({text: one}))
    failure = dict.fromkeys(("case", "control", "outcome", "kind", "message"), text)
    journal = tmp_path / "controls.jsonl"
    controls.append_to_journal(journal, controls.OpResult(text, {}, failures=[failure]))
    *_, read = controls.read_journal(journal)
    say.say(controls.replay_command(read.failures[0]))
    survivor = mutation_results.MutationResult(text, text, 1, text, text, text, text, [text])
    killed = replace(survivor, case=text or "-", by=text, outcome=text, kind=text, message=text)
    judged = {text: Judged(text, Judgement.HOLE, text)}
    say.say(mutation_results.survivors_text(mutation_results.mutant_rows([survivor, killed], judged)))
    for rows in (mutation_results.killers([killed]), mutation_results.mutant_rows([survivor, killed], judged)):
        output.show_table(rows, list(rows[0]), output.TableFormat.table)
    mutation_results.append_to_mutation_journal(tmp_path / "journal.jsonl", killed)
    assert mutation_results.read_mutation_journal(tmp_path / "journal.jsonl")[text] == killed


def listed(text: str, tmp_path: Path) -> None:
    row = {"name": text, "list": [text, text], "dict": {text: text}, "none": None, "yes": True, "n": -1.5}
    output.show_table([row], list(row), output.TableFormat.table)


def pytests(text: str, tmp_path: Path) -> None:
    print(failure_text(*hostile(text), "again"))


def pages(text: str, tmp_path: Path) -> None:
    case, verdict = hostile(text)
    report = OpReport("mylib::op", "opinfo", refused={"float32": text}, complaints=[Complaint(text, text, text)])
    report.unsupported[text] = 1
    report.tally.findings.add(FuzzFinding(signature(verdict), case, verdict, reduction(text), [text]))
    report.among = text
    shown = page(report, CampaignOptions("eager", 1.0, 1, Path("out")))
    outside = re.sub(r"^(`{3,}).*?^\1$", "", shown, flags=re.DOTALL | re.MULTILINE)  # of blocks of code
    headings = [line for line in outside.splitlines() if line.startswith(("#", "<", "=", "---"))]
    known = [line for line in headings if line.removeprefix("## ") in SECTIONS or line.startswith(("# mylib", "### "))]
    assert headings == known
    say.say(shown)


def modules(text: str, tmp_path: Path) -> None:
    """The text is in the module, in an option of its pass, and in the message of the failure."""
    held = "".join(f"\\{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))
    subject = Subject(f'module attributes {{x.a = "{held}"}} {{}}', (Entry("cse", "{" + text + "}"),))
    outcome = Ended("error", text, text)
    folder = tmp_path / "module"
    folder.mkdir(exist_ok=True)
    of_modules.write_reduction(folder, subject, Reduced(subject, 1, (), True), outcome, True, 0.1)
    module_reduction._show(subject, Reduced(subject, 1, (), True), True, 0.1, folder)
    lines = (folder / of_modules.MODULE).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines[:-1] if not line.startswith("// ")] == [] and lines[-1:] == [subject.module]
    json.loads((folder / of_modules.SUMMARY).read_text(encoding="utf-8"))


WRITERS: dict[str, Callable[[str, Path], None]] = {
    function.__name__: function
    for function in (says, errors, replayed, reduced, found, trials, listed, pytests, pages, modules)
}


@pytest.mark.few(2)
@pytest.mark.parametrize("writer", WRITERS)
def test_corpus(writer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in TEXTS.items():
        WRITERS[writer](text, tmp_path)
        assert shown(capsys) or name == "empty"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", TEXTS)
def test_on_a_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the codes that a table or a live line is made of are sent, and a text is neither markup nor a picture."""
    text = TEXTS[name]
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "10000")
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    output.show_table([{"text": text, "other": "end"}], ("text", "other"), output.TableFormat.table)
    table = out.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert quiet(table) and " ".join(f"{visible(text)} end".split()) in " ".join(table.split())
    with Progress([text, "b"], {"source": ["op"]}) as progress:
        progress.tick()
    with LiveText() as live:
        live.show(text)
    sent = err.getvalue()
    for code in ("\x1b[?25l", "\x1b[?25h", "\x1b[2K", "\x1b[1A", "\x1b[K", "\r"):
        sent = sent.replace(code, "")
    assert quiet(sent) and sent.count(visible(text)) >= 2


def test_what_stdout_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    say.escape_unencodable()
    for text in TEXTS.values():
        say.say(text)
    assert sys.stdout.buffer.getvalue().isascii()  # type: ignore[attr-defined]


def test_a_command_of_the_users_own(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """File names and options that are no UTF-8 end in one line."""
    for name in ("nul", "lone surrogates", "colours", "short option", "long word"):
        text = TEXTS[name]
        for args in (["replay", text, "-b", "eager"], ["replay", "x:y", "-b", text], [text], ["runs", "show", text],
                     ["report", "--store", text], ["expect", "check", "--expect", text]):  # fmt: skip
            assert cli.invoke(args) in (0, 1, 2)
            out, err = capfd.readouterr()
            assert quiet(out + err) and "Traceback" not in err, (args, err)


def test_texts_reach_the_summary_as_they_are(tmp_path: Path) -> None:
    for text in TEXTS.values():
        write.write_reduction(reduction(text), tmp_path)
        told: dict[str, Any] = json.loads((tmp_path / write.SUMMARY).read_text(encoding="utf-8"))
        assert told["message"] == text and told["backend"] == text
