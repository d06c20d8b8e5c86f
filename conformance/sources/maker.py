"""Entries made in a child process: what crashes or hangs as it makes an op's inputs takes nothing else with it.

Sample functions and variants call eager, and some of its kernels corrupt memory or never return for arguments that no
program has. So the process that runs the suite makes no case itself. A ``CaseMaker`` forks a *forker* once: from a
process that has imported PyTorch and loaded the sources, before any worker, display or cluster has started a thread.
The forker forks a child for each pass over the ops. The child makes their entries one after the other, with one thread,
and sends each as a frame, as far ahead of who reads them as the socket holds.

A child asks eager itself what it has to know. One that dies is followed by a *careful* one, which goes on where it
was: an op before may have corrupted the memory. For the rest of the op variants ask eager in forks (``forked``).
If that one dies there too, an ``Untested`` names the case in a variant that both were making, and the next child leaves
it out. Where it was no variant but the op's samples, the ``Untested`` names the op, and the next child begins after it.

    asker -> forker   a byte + descriptors of a channel, of a file for what is printed and of one for the id that is
                      being made: fork; a byte alone: kill
    forker -> asker   {"died": EXIT CODE}   once for each child
    asker -> child    {"ops": [[SOURCE, OP], …], "skip": N, "careful": BOOL, "fatal": {ID: WHY}, "given": {...}}
                      where to begin: N entries of the first op are there
    child -> asker    {} + a case's bytes, {"untested": {...}}, {"raised": CLASS, "message": TEXT, "input": BOOL},
                      {"done": true} after each op
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import gc
import os
import resource
import select
import signal
import socket
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import torch

from torchstone.conformance.errors import HarnessError, InputError
from torchstone.conformance.fork import allow_processor_time
from torchstone.conformance.program.case import Case, CaseError, Untested
from torchstone.conformance.runner.frames import Header, encode_frame, receive_frame
from torchstone.conformance.runner.progress_mark import describe_exit
from torchstone.conformance.sources.corpus import NO_DTYPE
from torchstone.conformance.sources.sampling import first_line
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.attempts import attempts

if TYPE_CHECKING:
    from torchstone.conformance.sources import Source

PROCESSOR_SECONDS = 120
"""Of the processor's time that one entry may take, with those before it that are filtered out."""
CARELESS_SECONDS = 20
"""The same of a child that is not careful: an argument may have sent eager into a loop without end."""
SECONDS = 600.0
"""Without an entry, of one that waits and does not compute."""
TAIL = 4096
"""Bytes of what a child has printed that its last words are looked for in; and of an id."""

Entry: TypeAlias = Case | Untested


class CaseMaker:
    """Makes entries in children of this process, as it is when this is called.

    ``make(source, op, **given)`` gives the entries of an op: the same ones in the same order every time.
    """

    def __init__(self, make: Callable[..., Iterable[Entry]]) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            pid = _fork(lambda: _serve(theirs, make), keep=[theirs.fileno()])
        self._busy = False
        self.close = weakref.finalize(self, _end, self._control, pid)
        """Ends the forker; it ends with the maker at the latest."""

    def entries(self, ops: Mapping[str, Sequence[str]], **given: Any) -> Iterator[Entry]:
        """The entries of the ops of each source; ``given`` (JSON) is passed on to ``make``.

        An ``Untested`` stands for the rest of an op that cannot be made, for it ends its process, takes too long or
        raises. Raises the ``InputError`` that ``make`` raises, and ``HarnessError`` where nothing can be forked.
        """
        if self._busy:
            raise HarnessError("a maker of cases makes one pass at a time")
        self._busy = True
        try:
            yield from self._pass([(source, op) for source, chosen in ops.items() for op in chosen], given)
        finally:
            self._busy = False

    def _pass(self, rest: list[tuple[str, str]], given: Header) -> Iterator[Entry]:
        skip, died, careful = 0, False, False
        fatal: dict[str, str] = {}
        while rest:
            request = {"ops": rest, "skip": skip, "careful": careful, "fatal": fatal, "given": given}
            child = _Child(self._control, request)
            try:
                for header, body in child.frames():
                    died = False
                    if "done" in header:
                        rest, skip, careful = rest[1:], 0, False
                        continue
                    skip += 1
                    if (entry := _entry(header, body, *rest[0])).id not in fatal:
                        yield entry
            finally:
                reason, at = child.end()
            if rest and (died or child.late):
                found = _unmade(*rest[0], reason, at)
                yield found
                if at:
                    fatal[at] = found.reason
                else:
                    rest, skip = rest[1:], 0
            died, careful = not (died or child.late), True


def make_case(source: Source, op: str, dtype: str, index: int, variant: str) -> Case:
    """One case of a source, in a variant. Raises ``UnknownName``, and ``InputError`` where there is none."""
    source.op_names()  # what a source loads once is loaded here, and not in each child
    maker = CaseMaker(lambda *_: [apply(source.case(op, dtype, index), variant)])
    found = next(maker.entries({"": [op]}))
    maker.close()
    if isinstance(found, Untested):
        raise InputError(f"{found.id} is no case: {found.reason}")
    return found


def _entry(header: Header, body: bytes, source: str, op: str) -> Entry:
    """What a frame of an op says. Raises InputError."""
    if "untested" in header:
        return Untested(**header["untested"])
    if "raised" not in header:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that complex32 is young
            return Case.from_bytes(body)
    if header["input"]:
        known: list[type[InputError]] = [InputError]
        for kind in known:
            known += kind.__subclasses__()
        kind = next((kind for kind in known if kind.__name__ == header["raised"]), InputError)
        error = kind.__new__(kind)
        Exception.__init__(error, header["message"])
        raise error
    return _unmade(source, op, f"raises {header['raised']}: {header['message']}")


def _unmade(source: str, op: str, reason: str, at: str = "") -> Untested:
    """What cannot be made: a case in a variant, by its id, or an op."""
    if at:
        source, op, dtype, index, variant = at.split(":")
        return Untested(source, op, dtype, f"making its inputs {reason}", int(index), variant)
    return Untested(source.partition("=")[0], op, NO_DTYPE, f"making its inputs {reason}")


class _Child:
    """A child of the forker, as the process that reads its frames sees it."""

    def __init__(self, control: socket.socket, request: Header) -> None:
        self._control = control
        self._careful = request["careful"]
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(SECONDS)
        self._output, self._mark = os.memfd_create("output"), os.memfd_create("mark")
        self.late = False
        try:
            with theirs:
                socket.send_fds(control, [b"+"], [theirs.fileno(), self._output, self._mark])
            self._channel.sendall(encode_frame(request))
        except OSError as error:
            raise HarnessError("the process that makes the cases has died") from error

    def frames(self) -> Iterator[tuple[Header, bytes]]:
        """The frames that it sends, until it ends or is ``late``."""
        try:
            while (frame := receive_frame(self._channel)) is not None:
                yield frame
        except TimeoutError:
            self.late = True
        except ConnectionError:
            return

    def end(self) -> tuple[str, str]:
        """Kill it if it lives; say what became of it, and which case in a variant it was making, if one."""
        self._channel.close()
        with contextlib.suppress(OSError):
            self._control.sendall(b"-")
        answer = receive_frame(self._control)
        if answer is None:
            raise HarnessError("the process that makes the cases has died")
        code = answer[0]["died"]
        size = os.fstat(self._output).st_size
        words = os.pread(self._output, TAIL, max(0, size - TAIL)).decode(errors="replace").strip().splitlines()
        at = os.pread(self._mark, TAIL, 0).rstrip(b"\0").decode()
        os.close(self._output)
        os.close(self._mark)
        if self.late:
            return f"gave nothing for {SECONDS:g} s", at
        if code == -signal.SIGXCPU:
            self.late = self._careful
            return f"took over {PROCESSOR_SECONDS} s of the processor's time", at
        return ": ".join([f"crashed eager: {describe_exit(code)}", *words[-1:]]), at


# -- the forker and its children, which no function here returns to ---------------------------------------------------


def _fork(run: Callable[[], object], keep: Iterable[int]) -> int:
    """Fork a process that does this and ends; return its number. Of this one's files it holds those to ``keep``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which a fork has not: none of them holds what eager needs
        pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the asker, which ends this
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in map(int, os.listdir("/proc/self/fd")):  # others wait for the asker to close what it holds
            if number > 2 and number != nothing and number not in keep:
                with contextlib.suppress(OSError):  # the listing's own
                    os.fstat(number)
                    os.dup2(nothing, number)
        run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _serve(control: socket.socket, make: Callable[..., Iterable[Entry]]) -> NoReturn:
    """Be the forker until the asker's end of the socket closes."""
    gc.freeze()  # no collection in a child touches, and so copies, what is there
    faulthandler.disable()
    torch.set_num_threads(1)  # the threads of the asker are not in its forks, which would wait for them for ever
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 3)
        if not data:
            os._exit(0)
        if not descriptors:
            continue  # to kill one that has ended
        pid = _fork(lambda files=descriptors: _make_all(files[0], files[1], files[2], make), keep=descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _wait(pid, control)
        _, status = os.waitpid(pid, 0)
        control.sendall(encode_frame({"died": os.waitstatus_to_exitcode(status)}))


def _wait(pid: int, control: socket.socket) -> None:
    """Wait until a child ends; one that the asker wants no more of is killed."""
    ended = os.pidfd_open(pid)
    poll = select.poll()
    for descriptor in (ended, control.fileno()):
        poll.register(descriptor, select.POLLIN)
    ready = [descriptor for descriptor, _ in poll.poll()]
    if ended not in ready:
        control.recv(1)
        os.kill(pid, signal.SIGKILL)
    os.close(ended)


def _make_all(channel: int, output: int, mark: int, make: Callable[..., Iterable[Entry]]) -> None:
    """Be a child: send what ``make`` gives for each op that is asked for."""
    for number in (1, 2):
        os.dup2(output, number)

    def begin(name: str) -> None:
        os.pwrite(mark, name.encode().ljust(TAIL, b"\0"), 0)

    with socket.socket(fileno=channel) as asker:
        request = receive_frame(asker)
        assert request is not None
        skip = request[0]["skip"]
        careful = request[0]["careful"]
        attempts.begin, attempts.fatal = begin, request[0]["fatal"]
        for source, op in request[0]["ops"]:
            attempts.expendable = not careful
            _allow_time()
            try:
                for entry in islice(make(source, op, **request[0]["given"]), skip, None):
                    asker.sendall(_frame(entry))
                    _allow_time()
            except (BrokenPipeError, ConnectionResetError):  # the asker wants no more
                os._exit(0)
            except BaseException as error:
                raised = {"raised": type(error).__name__, "input": isinstance(error, InputError)}
                text = str(error) if raised["input"] else first_line(error)
                asker.sendall(encode_frame({**raised, "message": text}))
            asker.sendall(encode_frame({"done": True}))
            skip, careful = 0, False
    os._exit(0)


def _frame(entry: Entry) -> bytes:
    if isinstance(entry, Case):
        try:
            return encode_frame({}, entry.to_bytes())
        except CaseError as error:
            entry = Untested(entry.source, entry.op, entry.dtype, str(error), entry.index, entry.variant)
    return encode_frame({"untested": dataclasses.asdict(entry)})


def _allow_time() -> None:
    """End this process where the next entry takes too long."""
    allow_processor_time(min(PROCESSOR_SECONDS, CARELESS_SECONDS) if attempts.expendable else PROCESSOR_SECONDS)


def _end(control: socket.socket, pid: int) -> None:
    control.close()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
