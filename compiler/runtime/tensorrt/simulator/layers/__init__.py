"""The simulated layers, one file a family."""
