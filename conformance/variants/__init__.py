"""Variants: the same case asked in another way."""

from torchstone.conformance.variants.protocol import NotApplicable, Variant

__all__ = ["NotApplicable", "Variant"]
