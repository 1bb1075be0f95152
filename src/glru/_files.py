"""Writing files in full or not at all."""

import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


def write_atomically(target: Path, write: Callable[[Path], None], make_folder: bool = False) -> None:
    """Let a function write a file beside the target, and put it in the target's place once it is whole.

    An error, an interrupt or a crash leaves the target as it was; the error says what to do about it.
    """
    part = target.with_name(f".{target.stem}.{os.getpid()}.{threading.get_ident()}.part{target.suffix}")
    try:
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
    except (ConnectionError, TimeoutError):
        # What was to be written did not come: nothing is wrong with the place.
        raise
    except OSError as error:
        raise _explain(error, target) from None
    finally:
        _remove(part)


@contextmanager
def exclusive(target: Path, wait: bool = True) -> Iterator[bool]:
    """Hold the right to write a file, and yield whether it is held: always, unless ``wait`` is False and it is taken.

    Threads and processes that ask for the same target take turns. The lock is the system's, on an empty file beside the
    target, so a process that is killed lets go of it; the next one uses that file and removes it.
    """
    path = target.with_name(f".{target.name}.lock")
    try:
        file = _open_locked(path, wait)
    except OSError as error:
        raise _explain(error, target) from None
    if file is None:
        yield False
        return
    with file:
        try:
            yield True
        finally:
            _remove(path)


def _open_locked(path: Path, wait: bool) -> IO[bytes] | None:
    """A file that is open and locked; None where it is another's and there is no waiting."""
    while True:
        file = path.open("ab")
        if not _lock(file, wait):
            file.close()
            return None
        # Whoever held the lock before removed the file: then a lock on it keeps nobody out, and another one is needed.
        if _is_at(file, path):
            return file
        file.close()


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is the one that a path names."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: IO[bytes], wait: bool) -> bool:
    """Lock an open file until it is closed; whether that worked."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if wait:
            raise
        return False
    return True


def remove_leftovers(target: Path) -> None:
    """Remove what killed processes left of :func:`write_atomically`; for whoever holds :func:`exclusive`.

    Only parts of writers that all ask for :func:`exclusive` are known to be nobody's any more.
    """
    for part in leftovers(target):
        _remove(part)


def leftovers(target: Path) -> list[Path]:
    """Parts of a file beside it, of writers that are at work or were killed."""
    pattern = re.compile(rf"\.{re.escape(target.stem)}\.\d+\.\d+\.part{re.escape(target.suffix)}")
    try:
        return [target.parent / name for name in os.listdir(target.parent) if pattern.fullmatch(name)]
    except OSError:
        # A folder that is not there, or that may not be listed: reading or writing the file says so.
        return []


def check_target(target: Path, what: str) -> None:
    """Refuse, before any work, a place where no file can be written."""
    if target.is_dir():
        raise ValueError(f"{what} must be a file; {target} is a folder. Name a file in it.")
    if not target.parent.is_dir():
        raise ValueError(f"{what} must lie in a folder that exists; {target.parent} does not. Make it first.")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise ValueError(f"{what} must lie in a folder that you may write to; {target.parent} is not. Name another.")


def _explain(error: OSError, target: Path) -> OSError:
    """Make an error of the same type that names the file and a remedy."""
    reason = error.strerror or str(error)
    found = type(error)(
        f"{target} could not be written ({reason}). Free space, or name another file in a folder that exists and that you "
        "may write to; a file of that name is as it was before."
    )
    found.errno = error.errno
    return found


def _remove(part: Path) -> None:
    """Remove what is left of a write that failed, as far as the folder allows it."""
    try:
        part.unlink(missing_ok=True)
    except OSError:
        # The folder is not there, is no folder, or is read-only: then nothing was written into it either.
        return


def refuse_input(target: Path, what: str, inputs: Iterable[Path | str | None]) -> None:
    """Refuse, before any work, to write to a file or folder that is an input, lies in one or holds one.

    Links are followed, and a hard link to an input is that input.
    """
    for source in inputs:
        if source is not None and (relation := _overlap(target, Path(source))):
            raise ValueError(f"{what} must leave the input alone; {target} {relation} {source}. Name another place.")


def _overlap(target: Path, source: Path) -> str | None:
    """How a place to write to and an input overlap; None where they do not."""
    if not source.exists():
        return None
    place, data = Path(os.path.realpath(target)), Path(os.path.realpath(source))
    if place == data or (place.exists() and place.samefile(data)):
        return "is"
    if any(parent.exists() and parent.samefile(data) for parent in place.parents):
        return "lies in"
    if place.is_dir() and any(parent.samefile(place) for parent in data.parents):
        return "is a folder with"
    return None
