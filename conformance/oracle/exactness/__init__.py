"""Results that have to be exact: the sign of a zero or a NaN, and single operations of IEEE 754."""
