"""References beside eager: float64, documented formulas and SciPy."""
