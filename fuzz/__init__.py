"""Random valid programs, ops asked alone, the campaigns that run them, and what becomes of the failures they find.

    torchstone.fuzz.register("mylib::scaled", sample=lambda dtype: [(torch.randn(3, 4).to(dtype), 2.0)])

An op of the user's own is registered where it is defined, and fuzzed by ``torchstone fuzz --op mylib::scaled --ops-from
mymodule``.
"""

from torchstone.conformance.custom.registration import register

__all__ = ["register"]
