"""A backend that does to its worker what real ones do; the first element of the first input says what.

Loaded in workers as ``torture_backend:Torture`` with this folder as the current one.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import torch

from torchstone.conformance.backends import Availability, BackendError, BackendUnsupported
from torchstone.conformance.runner.frames import encode_frame

NOT_DEEDS = ("name", "available", "versions", "compile", "compiled", "leaked")
HANGING = "hanging"
"""The file in a worker's temporary folder that says that it hangs from here on."""
SLEEP = 600
"""Seconds that children sleep."""


class Odd(BaseException):
    """What PyO3's PanicException is: no Exception."""


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text for you")


class Stubborn(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError("no function takes me")


class Torture:
    name = "torture"

    def available(self):
        return Availability(True)

    def versions(self):
        return {}

    compiled = 0
    leaked = ()

    def compile(self, fn, args):
        self.compiled += 1
        deed = DEEDS[int(args[0].reshape(-1)[0].item())]  # calls with other values do the same

        def run(*tensors):
            self.given = tensors
            result = getattr(self, deed)()
            return fn(*tensors) if result is None else result

        return run

    def obey(self):
        pass

    # -- dying --------------------------------------------------------------------------------------------------

    def segfault(self):
        ctypes.string_at(0)

    def abort(self):
        sys.stderr.write("LLVM ERROR: the last words\n")
        os.abort()

    def terminate(self):
        ctypes.CDLL("libstdc++.so.6")["_ZSt9terminatev"]()

    def stack_overflow(self):
        libc = ctypes.CDLL(None)
        compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        sys.setrecursionlimit(10**9)

        def deeper(left, right):
            libc.qsort((ctypes.c_int * 2)(2, 1), 2, 4, compare(deeper))
            return 0

        deeper(None, None)

    def os_exit(self):
        os._exit(7)

    def exit_well(self):
        os._exit(0)

    def sys_exit(self):
        sys.exit(3)

    def kill_by_hand(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def crash_once(self):
        mark = Path(os.environ["TORTURE_MARK"])
        if not mark.exists():
            mark.touch()
            os.abort()

    # -- not coming back ----------------------------------------------------------------------------------------

    def _say_so(self):
        Path(tempfile.gettempdir(), HANGING).touch()

    def hang(self):
        self._say_so()
        while True:
            time.sleep(0.01)

    def hang_in_c(self):
        self._say_so()
        ctypes.PyDLL(None).sleep(600)  # PyDLL: the GIL stays held

    def hang_deaf(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
        self._say_so()
        while True:
            time.sleep(1)

    def stop_itself(self):
        self._say_so()
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)

    def wait(self):
        """Go on once the file is there that says so."""
        while not Path(os.environ["TORTURE_MARK"] + "-go").exists():
            time.sleep(0.01)

    # -- raising ------------------------------------------------------------------------------------------------

    def base_exception(self):
        raise Odd("a panic")

    def interrupt(self):
        raise KeyboardInterrupt

    def unprintable(self):
        raise Unprintable

    def surrogates(self):
        raise ValueError("a name \udcff that is no text")

    def recursion(self):
        self.recursion()

    def unsupported(self):
        raise BackendUnsupported("no such kernel", "lower", op="aten.add")

    def fail(self):
        raise BackendError("pass pipeline failed", "compile")

    def cannot_allocate(self):
        raise MemoryError

    # -- wrong results ------------------------------------------------------------------------------------------

    def wrong_dtype(self):
        return torch.zeros(4, dtype=torch.float64)

    def wrong_shape(self):
        return torch.zeros(2, 2)

    def nan(self):
        return torch.full((4,), float("nan"))

    def random(self):
        return torch.rand(4, generator=torch.Generator().manual_seed(time.perf_counter_ns() % 2**31))

    def number(self):
        return 3.0

    def array(self):
        return self.given[0].numpy() * 2

    def text(self):
        return "a result"

    def nested_in_itself(self):
        inside = []
        inside.append(inside)
        return inside

    def shapeshifter(self):
        class Shifter:
            @property
            def __class__(self):
                raise RuntimeError("no class")

        return Shifter()

    def sparse(self):
        return (self.given[0] * 2).to_sparse()

    def meta(self):
        return torch.empty(4, device="meta")

    def fake(self):
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode() as mode:
            return mode.from_tensor(torch.zeros(4))

    def subclass(self):
        return (self.given[0] * 2).as_subclass(Stubborn)

    def lazy(self):
        import torch._lazy
        import torch._lazy.ts_backend

        torch._lazy.ts_backend.init()
        return self.given[0].to("lazy") * 2

    def batched(self):
        return torch._C._functorch._add_batch_dim(torch.zeros(4, 2), 1, 1)

    def freed(self):
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        place = libc.mmap(None, 1 << 20, 3, 0x22, -1, 0)
        result = torch.frombuffer((ctypes.c_float * 4).from_address(place), dtype=torch.float32)
        libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(1 << 20))
        return result

    def mutate(self):
        result = self.given[0] * 2
        self.given[0].add_(1)
        return result

    def alias(self):
        return self.given[0].mul_(2)

    # -- greed --------------------------------------------------------------------------------------------------

    def print(self):
        for _ in range(40):
            os.write(1, b"x" * 65536)
            print("y" * 10000)

    def print_much(self):
        block = b"z" * (1 << 20)
        for descriptor in (1, 2) * 50:
            os.write(descriptor, block)

    def hog(self):
        self.kept = []
        for _ in range(100):  # 3 GiB, then wait to be killed
            self.kept.append(b"x" * (1 << 25))
            time.sleep(0.01)
        time.sleep(600)

    def allocate(self):
        self.kept = bytearray(10 << 30)
        ctypes.memset((ctypes.c_char * len(self.kept)).from_buffer(self.kept), 1, len(self.kept))

    def leak(self):
        """Keep something of each case, as a cache without a bound does."""
        if len(self.leaked) < self.compiled:
            self.leaked = (*self.leaked, b"x" * (60 << 20))

    def fill_file(self):
        with open("filled", "wb") as file:  # in its current folder
            for _ in range(192):
                file.write(bytes(1 << 20))

    def fill_folder(self):
        for index in range(192):
            Path(tempfile.gettempdir(), f"filled-{index}").write_bytes(bytes(1 << 20))
            time.sleep(0.01)
        time.sleep(600)

    def leak_files(self):
        self.files = [os.open("/dev/null", os.O_RDONLY) for _ in range(400)]

    def leave_files(self):
        Path("in-the-current-folder.txt").write_text("mine")
        Path(tempfile.gettempdir(), "in-the-temporary-folder.txt").write_text("mine")
        Path("closed").mkdir(exist_ok=True)
        Path("closed").chmod(0o700)  # of the case before
        Path("closed", "inside").write_text("mine")
        Path("closed").chmod(0)

    def leave_shared_memory(self):
        self._share()
        if os.fork() == 0:
            self._share()
            os._exit(0)

    def die_with_shared_memory(self):
        self._share()
        os.abort()

    def _share(self):
        """Leave each kind of shared memory."""
        from multiprocessing import shared_memory

        self.kept = shared_memory.SharedMemory(create=True, size=4096)
        Path(f"/dev/shm/torch_{os.getpid()}_1_0").write_text("named as PyTorch does")
        ctypes.CDLL(None).shmget(0, 4096, 0o1600)  # IPC_PRIVATE, IPC_CREAT

    # -- the harness's own --------------------------------------------------------------------------------------

    def close_channel(self):
        os.closerange(3, 256)

    def write_everywhere(self):
        self._write(b"\xff" * 100)

    def forge(self):
        self._write(encode_frame({"case": "none", "verdict": {"outcome": "pass"}, "rss": 0}))

    def _write(self, data):
        for fd in range(3, 64):
            try:
                if stat.S_ISSOCK(os.fstat(fd).st_mode):
                    os.write(fd, data)
            except OSError:
                continue

    def close_output(self):
        os.closerange(1, 3)

    def kill_parents(self):
        parent = os.getppid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.killpg(os.getpgid(parent), number)
            os.kill(parent, number)

    def kill_parent_hard(self):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)

    # -- processes and threads ----------------------------------------------------------------------------------

    def fork(self):
        if os.fork() == 0:
            time.sleep(600)

    def fork_and_return(self):
        os.fork()

    def child(self):
        subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({SLEEP})"])

    def daemon(self):
        """Leave the session, have another parent, close everything, forget the environment."""
        code = (
            "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
            f"os.closerange(0, 256)\ntime.sleep({SLEEP})"
        )
        subprocess.run([sys.executable, "-c", code], env={}, check=True)

    def busy_thread(self):
        threading.Thread(target=self._spin, daemon=True).start()

    def _spin(self):
        while True:
            pass

    # -- the process's settings ---------------------------------------------------------------------------------

    def change_process(self):
        os.chdir("/")
        os.umask(0o777)
        os.environ["PATH"] = "/nowhere"
        os.environ.pop("TMPDIR")
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (16, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        sys.setrecursionlimit(120)
        sys.stdout = sys.stderr = None
        gc.disable()

    def change_torch(self):
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(3)
        torch.set_grad_enabled(True)
        torch.set_flush_denormal(True)
        torch.set_float32_matmul_precision("medium")
        torch.set_default_device("meta")
        torch.manual_seed(time.perf_counter_ns())
        warnings.simplefilter("error")

    def patch(self):
        def broken(*args, **kwargs):
            raise RuntimeError("patched")

        for holder, name in ((torch, "add"), (torch, "isfinite"), (torch.Tensor, "clone"), (time, "perf_counter")):
            setattr(holder, name, broken)
        time.sleep = broken


setattr(Torture, "raise", lambda self: 1 // 0)
DEEDS = tuple(name for name in vars(Torture) if not name.startswith("_") and name not in NOT_DEEDS)


class Together(Torture):
    """Compiles up to eight programs at once; the deeds are done while it compiles."""

    name = "together"
    batch = 8

    def compile(self, fn, args, count=1):
        def run(*tensors):
            return fn(*tensors)

        run.evidence = {"together": count}
        getattr(self, DEEDS[int(args[0].reshape(-1)[0].item())])()
        return run

    def compile_many(self, programs):
        programs, found = list(programs), []
        for fn, args in programs:
            try:
                found.append(self.compile(fn, args, len(programs)))
            except Exception as error:
                found.append(error)
        return found


class Where(Torture):
    """Says which Python it runs in, and what that had loaded for it."""

    name = "where"

    def compile(self, fn, args):
        run = super().compile(fn, args)
        run.evidence = {"python": sys.executable, "dynamo": "torch._dynamo" in sys.modules}
        return run


class DiesAtStart(Torture):
    name = "dies-at-start"

    def available(self):
        os.abort()


class Refuses(Torture):
    name = "refuses"

    def available(self):
        return Availability(False, "its library is missing", "pip install it")


not_a_backend = 7
