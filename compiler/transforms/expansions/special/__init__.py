"""Expansions of special functions."""
