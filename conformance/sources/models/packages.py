"""The packages of models, imported when a model is made."""

from __future__ import annotations

import functools
import importlib.util
from types import ModuleType

import torch

from torchstone.conformance.errors import InputError
from torchstone.conformance.sources.sampling import first_line

INSTALL = 'pip install "torchstone[models]"'
PACKAGES = ("timm", "transformers")

_STANDINS: list[torch.library.Library] = []


def installed(package: str) -> bool:
    """Say whether a package is there, without importing it."""
    return importlib.util.find_spec(package) is not None


@functools.cache
def timm() -> ModuleType:
    """Import ``timm``. InputError where it is missing or cannot be imported."""
    _import_torchvision()
    return _import("timm")


@functools.cache
def transformers() -> ModuleType:
    """Import ``transformers``, its log off. InputError as for ``timm``."""
    if installed("torchvision"):
        _import_torchvision()
    library = _import("transformers")
    library.logging.set_verbosity_error()
    return library


def _import(package: str) -> ModuleType:
    if not installed(package):
        raise InputError(f"{package} is not installed; {INSTALL}")
    try:
        return importlib.import_module(package)
    except Exception as error:
        raise InputError(f"{package} cannot be imported: {type(error).__name__}: {first_line(error)}") from error


def _import_torchvision() -> None:
    """Import ``torchvision``, which both packages import, where its compiled ops do not load, too.

    The registries have it for PyTorch with CUDA. Beside another build it fails, as it registers rules for two ops that
    are not there. The models call neither.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        ops = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            ops.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _STANDINS.append(ops)
    except ImportError:
        return  # the package itself says what it misses
