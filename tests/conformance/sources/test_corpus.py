"""The regression corpus: bugs of the past stay fixed; a folder of a user's; files that are damaged or not files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from torchstone.conformance.backends import load
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.selection.selection import select_cases
from torchstone.conformance.sources import FOLDER
from torchstone.conformance.sources import load as source
from torchstone.conformance.sources.corpus import Corpus

SHIPPED = list(Corpus().iterate())


def saved(path: Path, **changes: object) -> Path:
    program = Program(("x",), (Call("torch.neg", (Ref("x"),), {}, "y"),), Ref("y"))
    path.parent.mkdir(parents=True, exist_ok=True)
    Case(program, {"x": torch.ones(2)}, "opinfo", "neg", "float32", index=3).replace(**changes).save(path)
    return path


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.op)
def test_bugs_of_the_past_stay_fixed(entry: Case | Untested) -> None:
    assert isinstance(entry, Case), entry
    assert len(entry.to_bytes()) < 4096 and entry.id == f"corpus:{entry.op}:{entry.dtype}:0"
    for backend in ("eager", "linalg"):
        verdict = run_case(entry, load(backend))
        assert verdict.outcome == "pass", verdict.message


def test_cases_are_called_after_their_files(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    first = saved(folder / "a b.safetensors")
    saved(folder / "deep" / "c.safetensors", variant="batch", tags=("train", "made up"))
    (folder / "notes.txt").write_text("no case")
    corpus = source(f"{FOLDER}{folder}")
    entries = list(corpus.iterate())
    assert [entry.id for entry in entries] == ["corpus:mine/a_b:float32:0", "corpus:mine/deep/c:float32:0:batch"]
    assert isinstance(entries[1], Case) and entries[1].tags == ("train",)
    assert {"regression", "unary"} <= corpus.tags_of("mine/a_b")
    saved(folder / "0.safetensors")
    again = Corpus(folder)
    assert again.case("mine/a_b", "float32", 0).to_bytes() == corpus.case("mine/a_b", "float32", 0).to_bytes()
    assert Case.load(first).source == "opinfo", "the file is left as it is"
    with pytest.raises(UnknownName):
        corpus.case("mine/d", "float32", 0)


@pytest.mark.parametrize(
    ("variant", "kept"), [("outside", True), ("constants", True), ("strided", False), ("seed-3", False)]
)
def test_a_variant_that_says_how_it_is_run_is_kept(tmp_path: Path, variant: str, kept: bool) -> None:
    saved(tmp_path / "a.safetensors", variant=variant)
    (entry,) = Corpus(tmp_path).iterate()
    assert isinstance(entry, Case) and entry.variant == (variant if kept else "default")


def test_a_file_that_cannot_be_read_costs_itself_only(tmp_path: Path) -> None:
    good = saved(tmp_path / "good.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(good.read_bytes()[:-5])
    (tmp_path / "pickle.safetensors").write_bytes(b"\x80\x04\x95cposix\nsystem\n(S'touch owned'\ntR.")
    (tmp_path / "folder.safetensors").mkdir()
    os.mkfifo(tmp_path / "pipe.safetensors")
    saved(tmp_path / "dtype.safetensors", dtype="float31")
    found = select_cases({"sources": [f"{FOLDER}{tmp_path}"], "dtypes": ["float32"]})
    entries = {entry.op.rpartition("/")[2]: entry for entry in found.entries()}
    assert len(entries) == 6 and isinstance(entries.pop("good"), Case)
    for name, entry in entries.items():
        assert isinstance(entry, Untested) and str(tmp_path / f"{name}.safetensors") in entry.reason
    assert len(found.damaged) == 5


def test_folders_that_are_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no folder"):
        Corpus(tmp_path / "missing")
    with pytest.raises(InputError, match="holds no case file"):
        Corpus(tmp_path).op_names()
    for parent in ("a", "b"):
        saved(tmp_path / parent / "cases" / "x.safetensors")
    with pytest.raises(InputError, match="two corpora are called cases"):
        select_cases({"sources": [f"{FOLDER}{tmp_path}/{parent}/cases" for parent in ("a", "b")]})
