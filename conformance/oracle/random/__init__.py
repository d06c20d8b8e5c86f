"""Random numbers: replayed where they can be, else compared by their distribution."""
