"""From a case to a verdict: run eager and the backend, watch what else they do, ask the oracle."""
