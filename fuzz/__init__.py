"""Random valid programs, the campaigns that run them, and what becomes of the failures they find."""
