"""Where the suite runs: here, or in a copy of the tree, as another user, under mounts of its own.

A place is what starts a command there: the folder, the interpreter, and the words before the command. ``Absent`` says
why this machine cannot have it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USER = "nobody"
SHM = "1m"


class Absent(Exception):
    """This machine cannot have the place, and why."""


@dataclass(frozen=True)
class Place:
    """``before``: words that the command is started with. ``environment``: variables the place itself needs."""

    folder: Path
    python: Path
    before: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


def here(scratch: Path) -> Place:
    return Place(ROOT, Path(sys.executable))


def umask(scratch: Path) -> Place:
    return Place(ROOT, Path(sys.executable), ("sh", "-c", 'umask 077; exec "$@"', "sh"))


def path_with_space(scratch: Path) -> Place:
    return copied(scratch / "a path with spaces")


def ordinary_user(scratch: Path) -> Place:
    """A copy that belongs to a user who may do nothing else; what leads to the interpreter is opened by mounts."""
    if os.geteuid() != 0:
        raise Absent("this is an ordinary user already: plain is it")
    _need("setpriv")
    account = pwd.getpwnam(USER)
    place = copied(scratch / "copy")
    home = scratch / "home"
    home.mkdir()
    for path in (place.folder, home):
        subprocess.run(["chown", "-R", f"{account.pw_uid}:{account.pw_gid}", str(path)], check=True)
    scratch.chmod(0o755)
    become = f'exec setpriv --reuid {account.pw_uid} --regid {account.pw_gid} --clear-groups -- "$@"'
    before = _mounting([*_opened(scratch), become])
    return Place(place.folder, place.python, before, {"HOME": str(home), "USER": USER, "LOGNAME": USER})


def small_shm(scratch: Path) -> Place:
    if not Path("/dev/shm").is_dir():
        raise Absent("there is no /dev/shm")
    before = _mounting([f"mount -t tmpfs -o size={SHM},mode=1777 tmpfs /dev/shm", 'exec "$@"'])
    return Place(ROOT, Path(sys.executable), before)


PLACES: dict[str, Callable[[Path], Place]] = {
    place.__name__: place for place in (here, umask, path_with_space, ordinary_user, small_shm)
}


def tree() -> list[str]:
    """Return the files that git knows of, and the new ones that it would."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return sorted(filter(None, done.stdout.split("\0")))


def copied(target: Path) -> Place:
    """Copy what git knows of the tree, with an environment of its own that installs nothing but the copy."""
    names = tree()
    if not names:
        raise Absent("the tree is no git repository, which says what belongs to it")
    for name in names:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    venv.create(target / ".venv", symlinks=True)
    there = next((target / ".venv").glob("lib/python*/site-packages"))
    _link_packages(there, target)
    for script in Path(sys.prefix, "bin").iterdir():
        if script.is_file() and script.name not in os.listdir(target / ".venv/bin") and "ctivate" not in script.name:
            _copy_script(script, target)
    return Place(target, target / ".venv/bin/python")


def _link_packages(there: Path, target: Path) -> None:
    """Let the environment have the packages of this one, and torchstone from the copy."""
    folders = [Path(folder) for folder in site.getsitepackages()]
    links = [path for folder in folders for path in folder.glob("__editable__*torchstone*")]
    if not links:
        raise Absent("torchstone is not installed as editable: `make install` does that")
    for link in links:
        (there / link.name).write_text(link.read_text().replace(str(ROOT), str(target)))
    for folder in folders:
        for metadata in folder.glob("torchstone-*.dist-info"):
            shutil.copytree(metadata, there / metadata.name)
    packages = [path for path in sys.path if path.endswith("-packages")]
    (there / "packages.pth").write_text("".join(f"{path}\n" for path in packages))


def _copy_script(script: Path, target: Path) -> None:
    """A script of the environment, for the copy's interpreter; a shebang takes no path with a space, `sh` does."""
    text = script.read_bytes()
    if not text.startswith(b"#!"):
        (target / ".venv/bin" / script.name).symlink_to(script.resolve())
        return
    _, _, rest = text.partition(b"\n")
    python = str(target / ".venv/bin/python")
    head = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"
    made = target / ".venv/bin" / script.name
    made.write_bytes(head.encode() + rest.replace(sys.prefix.encode(), str(target / ".venv").encode()))
    made.chmod(0o755)


def _opened(scratch: Path) -> list[str]:
    """Commands that open what leads to the interpreter and its packages, in this process's mounts alone.

    Over each folder that others may not enter comes an empty one, in which what is needed is mounted again.
    """
    needed = {Path(sys.base_prefix).resolve(), Path(sys.base_exec_prefix).resolve()}
    needed |= {Path(path).resolve() for path in sys.path if path.endswith("-packages")}
    closed: dict[Path, list[Path]] = {}
    for path in sorted(needed):
        shut = next((p for p in reversed([path, *path.parents]) if not p.stat().st_mode & 0o001), None)
        if shut is not None:
            closed.setdefault(shut, []).append(path)
    commands = []
    for number, (shut, paths) in enumerate(closed.items()):
        kept = [(path, scratch / f"mount{number}-{index}") for index, path in enumerate(paths)]
        commands += [f"mkdir -p '{hold}' && mount --bind '{path}' '{hold}'" for path, hold in kept]
        commands.append(f"mount -t tmpfs -o mode=755 tmpfs '{shut}'")
        commands += [f"mkdir -p '{path}' && mount --bind '{hold}' '{path}'" for path, hold in kept]
    return commands


def _mounting(commands: list[str]) -> tuple[str, ...]:
    """Words that run a command after these, with mounts that nobody else sees."""
    _need("unshare")
    trial = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    if trial.returncode:
        raise Absent(f"no mounts of its own: {trial.stderr.strip() or 'unshare failed'} (it takes root)")
    return ("unshare", "--mount", "sh", "-e", "-c", "\n".join(commands), "sh")


def _need(program: str) -> None:
    if shutil.which(program) is None:
        raise Absent(f"there is no {program}, of util-linux")
