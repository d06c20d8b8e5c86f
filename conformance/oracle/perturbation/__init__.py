"""The rounding model, and conditioning: what rounding may do to a program's result."""
