"""A backend that does not survive a patched PyTorch."""

from __future__ import annotations

import os

from torch.export import exported_program

from torchstone.conformance.backends import composite
from torchstone.conformance.backends.adapters.eager import Eager


class DiesPatched(Eager):
    name = "dies-patched"

    def compile(self, fn, args):
        real = exported_program._override_composite_implicit_decomp
        with composite.composite_ops_known():
            if exported_program._override_composite_implicit_decomp is not real:
                os.abort()
        return super().compile(fn, args)
