"""One trial in a fresh interpreter, told as JSON: ``once FILE PIPELINE SECONDS [ENTRY TOLERANCE]``."""

import dataclasses
import json
import sys
from pathlib import Path

from torchstone.reducers.mlir import pipeline, questions
from torchstone.reducers.mlir.shrink import Subject

if __name__ == "__main__":
    path, passes, seconds, *values = sys.argv[1:]
    timeout = float(seconds)
    ask = questions.computing(values[0], timeout, float(values[1])) if values else questions.passing(timeout)
    outcome = ask(Subject(Path(path).read_text(encoding="utf-8"), pipeline.parse(passes)))
    print(json.dumps(dataclasses.asdict(outcome)))
