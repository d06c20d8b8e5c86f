"""Results that depend on where a program leaves the range of its dtype."""
