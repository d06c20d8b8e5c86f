"""Numbers that are known at a call only: sizes, numbers read from tensors, and what a program decides by them."""
