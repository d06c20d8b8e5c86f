"""Ops of the user's own: how they are named and found, what they take, their cases, and what they promise."""
