"""Settings for the whole suite."""

import gc
import os
import random
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, core, settings

from tests.sampling import spread

# Before torch is imported, here and in the processes that tests start. The tensors are small, and the suite is run in a
# process a core: threads that wait for each other are a quarter of what it takes.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The tests start Python time and again. Without a cache of bytecode each start compiles the package again, and
# pytest rewrites the assertions of every test file in each of its processes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Collecting makes objects that all stay: a garbage collector that walks over them frees nothing.
gc.disable()

# A job that a shell starts in the background ignores SIGINT, and so does every process it starts: the tests that
# interrupt a command would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no reason to fail: neither a deadline nor the speed of drawing inputs is a property under test.
# Derandomized, so that the suite says the same of the same tree; campaigns look for new inputs, not CI.
# TORCHSTONE_TEST_SEED=7 draws others, here and of PyTorch, and the same again for the same number.
SEED = os.environ.get("TORCHSTONE_TEST_SEED")
settings.register_profile(
    "torchstone",
    deadline=None,
    derandomize=SEED is None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("torchstone")
if SEED is not None:
    core.global_force_seed = int(SEED)


def seed() -> None:
    """Seed what draws at random: what a test gets does not depend on the tests before it in its process."""
    random.seed(int(SEED or 0))
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized():
            torch.manual_seed(int(SEED or 0))
        else:  # which without a device in use writes down three stacks, a millisecond a test
            torch.default_generator.manual_seed(int(SEED or 0))


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    spread(items)


def pytest_runtest_setup() -> None:
    seed()
    if ops := sys.modules.get("torchstone.conformance.custom.registration"):  # of a command that a test has run
        ops._MODULES.clear()
        ops._OPS.clear()


def pytest_collection_finish() -> None:
    """Let no collection of garbage walk over the tests, and what they have imported, again."""
    gc.collect()
    gc.freeze()
    # Captures make many small objects, few of them in cycles: at Python's 700 a tenth of their time is its search.
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="session")
def warm_python():
    """A Python with PyTorch in it already, for programs that a process of their own is enough for."""
    from .warm_python import WarmPython

    python = WarmPython()
    yield python
    python.close()


@pytest.fixture(scope="session")
def warm_compiler():
    """A Python with what PyTorch imports in it too when it first captures a program, for those that compile."""
    from .warm_python import WarmPython

    python = WarmPython("torch._dynamo", "sympy")
    yield python
    python.close()


@pytest.fixture(scope="session")
def fork_server():
    """Keep the fork server up, for tests that run the command in this process time and again: each would start one."""
    from torchstone.conformance.runner.interpreter import Interpreter
    from torchstone.conformance.runner.worker_process import ForkServerClient

    server = ForkServerClient.shared(Interpreter())
    yield
    server.close()


NEW_OPS: tuple[dict, list] = {}, []


@pytest.fixture
def new_ops(monkeypatch):
    """The ops of ``tests.new_ops``, registered for this test alone: every worker of a process imports what it has."""
    from torchstone.conformance.custom import registration

    monkeypatch.chdir(Path(__file__).parents[1])
    registered, modules = NEW_OPS  # a module registers its ops once in a process
    monkeypatch.setattr(registration, "_OPS", registered)
    monkeypatch.setattr(registration, "_MODULES", modules)
    registration.load_modules(["tests.new_ops"])
    assert registered, "a test has imported tests.new_ops without this fixture, and its ops are registered nowhere"
