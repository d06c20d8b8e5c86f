"""Which code is the user's, and which line of it is running."""

from __future__ import annotations

import os
import sys

import torch

from torchstone.compiler.capture.state.code import is_user_code
from torchstone.compiler.diagnostics import quote
from torchstone.compiler.ir import Frame, Location

_OURS = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep)
_is_user: dict[str, bool] = {}
_MOST_FRAMES = 8


def is_user_file(file: str) -> bool:
    """Say whether code is the user's: neither PyTorch's, nor the compiler's, nor made up."""
    user = _is_user.get(file)
    if user is None:
        user = _is_user[file] = not file.startswith(("<", *_OURS)) and os.sep + "contextlib" not in file
    return user


def user_location() -> Location:
    """Return the frames of the running program that are neither PyTorch's nor the compiler's, innermost first."""
    frames: list[Frame] = []
    frame = sys._getframe(1)
    while frame is not None and len(frames) < _MOST_FRAMES:
        file = frame.f_code.co_filename
        if is_user_file(file):
            frames.append(Frame(file, frame.f_lineno, frame.f_code.co_name))
        elif frames and file.startswith(_OURS[1]):
            break  # past the user's function: the rest is who called compile
        frame = frame.f_back
    return Location(tuple(frames))


def raised_at(error: BaseException) -> str:
    """Quote the user's line on which an error came up; empty when none of the user's was running.

    Of what the user has installed and Python's own, only where nothing else was.
    """
    frames: list[Frame] = []
    own: list[Frame] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_user_file(code.co_filename):
            frames.append(Frame(code.co_filename, trace.tb_lineno, code.co_name))
            own += frames[-1:] if is_user_code(code) else []
        trace = trace.tb_next
    return quote((own or frames)[-1]) if frames else ""


def raised_by_user(error: BaseException) -> bool:
    """Say whether it was the user's code that raised an error, and not what that called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and is_user_file(trace.tb_frame.f_code.co_filename)
