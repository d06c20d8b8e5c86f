"""Backends for tests of other releases of PyTorch: one whose PyTorch lacks a name, and one that is a little off."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_map_only

from torchstone.conformance.backends.adapters.eager import Eager


class WithoutSoftsign(Eager):
    name = "without-softsign"

    def available(self):
        if hasattr(torch.nn.functional, "softsign"):
            del torch.nn.functional.softsign
        return super().available()


class Off(Eager):
    """Eager's results times 1.0003: what the oracle looks into by every means it has."""

    name = "off"

    def compile(self, fn, args):
        def off(value):
            return value * (1 + 3e-4) if value.is_floating_point() or value.is_complex() else value

        return lambda *tensors: tree_map_only(torch.Tensor, off, fn(*tensors))
