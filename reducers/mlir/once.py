"""One trial in a fresh interpreter, told as JSON: ``once FILE PIPELINE SECONDS [ENTRY TOLERANCE]``."""

import dataclasses
import json
import sys
from pathlib import Path

from torchstone.reducers.mlir import pipeline, questions, values
from torchstone.reducers.mlir.shrink import Subject

if __name__ == "__main__":
    path, passes, seconds, *of_values = sys.argv[1:]
    timeout = float(seconds)
    ask = values.computing(of_values[0], timeout, float(of_values[1])) if of_values else questions.passing(timeout)
    outcome = ask(Subject(Path(path).read_text(encoding="utf-8"), pipeline.parse(passes)))
    print(json.dumps(dataclasses.asdict(outcome)))
