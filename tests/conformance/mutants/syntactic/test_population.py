"""What mutants are drawn from, and how."""

from __future__ import annotations

import ast
import itertools

import pytest

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.mutants.syntactic import population
from torchstone.conformance.mutants.syntactic.enumerate import mutations
from torchstone.conformance.mutants.syntactic.judgements import Judgement, read_judgements

TEXTS = {"a.py": "def f(x, y):\n    return x - y * 2\n", "b.py": "def g(x):\n    return not x\n"}


def drawn(seed, count):
    return [one.fingerprint for one in itertools.islice(population.draw(TEXTS, seed), count)]


def test_a_draw_follows_from_its_seed_and_a_smaller_one_is_the_beginning_of_a_larger_one():
    assert drawn(1, 6) == drawn(1, 6) and drawn(1, 3) == drawn(1, 6)[:3]
    assert sorted(drawn(1, 99)) == sorted(drawn(2, 99)) and drawn(1, 99) != drawn(2, 99)


def test_every_file_is_drawn_from_on_one_target_or_left_out_for_a_reason():
    taken = [path for target in population.TARGETS for path in population.sources(target)]
    every = [file for folder in population.FOLDERS for file in (population.ROOT / folder).rglob("*.py")]
    left_out = {file.relative_to(population.ROOT).as_posix() for file in every} - set(taken)
    assert len(taken) == len(set(taken))
    assert {path for path in left_out if not path.startswith(tuple(population.NOT_DRAWN))} == set()
    assert all((population.ROOT / path).exists() for path in population.NOT_DRAWN)


@pytest.mark.torture
def test_every_mutation_of_the_compiler_is_python():
    sources = (population.sources(target) for target in population.TARGETS)
    found = [one for texts in sources for path, text in texts.items() for one in mutations(path, text)]
    wrong = [f"{one.path}:{one.line}: {one.text}" for one in found if not parses(one)]
    assert len(found) > 10_000 and wrong == []


def parses(mutation):
    try:
        ast.parse(mutation.text if mutation.statement else f"({mutation.text})")
    except SyntaxError:
        return False
    return True


def test_names_that_there_are_none_of():
    with pytest.raises(UnknownName, match="linalgg"):
        population.sources("linalgg")
    first = drawn(1, 1)[0]
    assert list(population.find(TEXTS, [first])) == [first]
    with pytest.raises(UnknownName, match="abc"):
        population.find(TEXTS, ["abc"])


def test_the_judgements_of_the_repository_have_reasons_and_are_of_mutants_that_exist():
    judged = read_judgements()
    texts = {path: text for target in population.TARGETS for path, text in population.sources(target).items()}
    assert all(len(one.reason) > 10 for one in judged.values())
    population.find({path: texts[path] for path in sorted({one.file for one in judged.values()})}, judged)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[mutant]]\nfingerprint = "a"\nfile = "f.py"\njudgement = "fine"\nreason = "it is"\n', "not a judgement"),
        ('[[mutant]]\nfingerprint = "a"\nfile = "f.py"\njudgement = "hole"\nreason = " "\n', "has no reason"),
        ('[[mutant]]\nfingerprint = "a"\nfile = "f.py"\njudgement = "hole"\nreason = "b"\n' * 2, "judged twice"),
        ("[[mutant\n", "judged.toml"),
    ],
)
def test_a_table_of_judgements_that_is_none(tmp_path, text, message):
    path = tmp_path / "judged.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_judgements(path)


def test_judgements(tmp_path):
    path = tmp_path / "judged.toml"
    path.write_text('[[mutant]]\nfingerprint = "a"\nfile = "f.py"\njudgement = "equivalent"\nreason = "x is y here"\n')
    assert read_judgements(path)["a"].judgement is Judgement.EQUIVALENT
