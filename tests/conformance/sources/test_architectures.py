"""Architectures of other packages as cases: without these packages here, with them in a torture test."""

from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from torchstone.conformance.errors import InputError
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import models
from torchstone.conformance.sources.models import architectures, packages
from torchstone.conformance.sources.models.example import Example, tensors_of
from torchstone.conformance.sources.models.examples import EXAMPLES


def test_names_are_told_apart() -> None:
    assert len(models.EVERY) == len(EXAMPLES) + len(architectures.CHOSEN) + len(architectures.HELD_OUT)
    assert {example.package for example in models.EVERY.values()} == {"", *packages.PACKAGES}


def test_without_the_packages_the_own_models_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "installed", lambda package: False)
    monkeypatch.setattr(packages, "installed", lambda package: False)
    assert models.op_names() == models.select() == sorted(EXAMPLES)
    for name, package in (("vit", "timm"), ("llama", "transformers")):
        with pytest.raises(
            InputError, match=rf'{name} is of {package}, which is not installed; pip install "torchstone'
        ):
            models.select([name])
        with pytest.raises(InputError, match=f"{package} is not installed"):
            getattr(packages, package).__wrapped__()
    with pytest.raises(InputError, match="no model matches"):
        models.select(["vi*"])


def test_a_broken_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed", lambda package: package == "a_package_that_nobody_has")
    with pytest.raises(InputError, match="a_package_that_nobody_has cannot be imported: ModuleNotFoundError"):
        packages._import("a_package_that_nobody_has")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.BatchNorm1d(4), nn.Linear(4, 4)
        nn.init.zeros_(self.layer.bias)


def test_what_a_new_model_has_the_same_everywhere_is_drawn() -> None:
    example = Example(Net, lambda batch, dtype: (torch.ones(batch), torch.zeros(batch)), (0,), ("mask",), "a package")
    model = example.model(torch.float32)
    state = model.state_dict()
    drawn = ("norm.weight", "norm.bias", "layer.bias", "norm.running_mean", "norm.running_var")
    assert all(state[name].unique().numel() == 4 for name in drawn)
    assert all(
        torch.equal(one, other)
        for one, other in zip(state.values(), example.model(torch.float32).state_dict().values(), strict=True)
    )
    assert [t.tolist() for t in example.args(1)] == [[1.0]] and list(example.kwargs(1)) == ["mask"]


def test_of_a_result_the_tensors_are_kept() -> None:
    x, y = torch.ones(2), torch.zeros(3)
    cache = SimpleNamespace(layers=[SimpleNamespace(keys=x, dtype=torch.float32), SimpleNamespace(keys=None)], seen=3)
    found = tensors_of(OrderedDict(logits=y, cache=cache, loss=None))
    assert list(found) == ["logits", "cache"] and found["logits"] is y
    assert found["cache"]["layers"][0] == {"keys": x} and len(found["cache"]["layers"]) == 1


@pytest.mark.torture
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*architectures.CHOSEN, *architectures.HELD_OUT])
def test_architectures_are_cases(name: str) -> None:
    if not packages.installed(models.EVERY[name].package):
        pytest.skip(f"no {models.EVERY[name].package}")
    entries = list(models.iterate([name], ["float32"]))
    assert len(entries) == 2 and all(isinstance(entry, Case) for entry in entries), entries
