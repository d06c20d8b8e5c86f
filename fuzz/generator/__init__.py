"""The program generator: choices in, a valid program out."""
