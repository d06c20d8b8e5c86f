"""Variants: the same case asked in another way."""
