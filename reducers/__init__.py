"""The shrinking engine, its passes for programs, and the reproducers it writes."""
