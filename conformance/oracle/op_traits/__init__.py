"""What the oracle and the fuzzer know of ops by their names: ``trait`` defines a trait, ``table`` lists them all."""
