"""Files that are written completely or not at all, and safe reading of untrusted NumPy archives (.npz).

Nothing in an archive is unpickled, and nothing is allocated that the file does not hold.
"""

import errno
import os
import re
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, final

import numpy as np
from numpy.typing import NDArray

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


def write_atomically(target: Path, write: Callable[[Path], object], make_folder: bool = False) -> None:
    """Let a function write a temporary file next to the target, and move it to the target when it is complete.

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
def hold_lock(target: Path, wait: bool = True) -> Iterator[bool]:
    """Hold an exclusive lock for writing a file, and yield whether it is held: always, unless ``wait`` is False and another holds it.

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
    """An open, locked file; None if another process holds the lock and ``wait`` is False."""
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
    """Remove temporary files of :func:`write_atomically` that killed processes left; call it while holding :func:`hold_lock`.

    Only parts of writers that all ask for :func:`hold_lock` are known to be nobody's any more.
    """
    for part in list_leftovers(target):
        _remove(part)


def list_leftovers(target: Path) -> list[Path]:
    """Temporary files next to a target, of writers that are at work or were killed."""
    pattern = re.compile(rf"\.{re.escape(target.stem)}\.\d+\.\d+\.part{re.escape(target.suffix)}")
    try:
        return [target.parent / name for name in os.listdir(target.parent) if pattern.fullmatch(name)]
    except OSError:
        # A folder that is not there, or that may not be listed: reading or writing the file says so.
        return []


def check_target(target: Path, what: str) -> None:
    """Before any work, refuse a path that cannot be written."""
    if target.is_dir():
        raise ValueError(f"{what} must be a file; {target} is a folder. Name a file in it.")
    if not target.parent.is_dir():
        raise ValueError(f"{what} must lie in a folder that exists; {target.parent} does not. Make it first.")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise ValueError(f"{what} must lie in a folder that you may write to; {target.parent} is not. Name another.")


def _explain(error: OSError, target: Path) -> OSError:
    """An error of the same type that names the file and a remedy."""
    reason = error.strerror or str(error)
    found = type(error)(
        f"{target} could not be written ({reason}). Free space, or name another file in a folder that exists and that you "
        "may write to; a file of that name is as it was before."
    )
    found.errno = error.errno
    return found


def _remove(part: Path) -> None:
    """Remove the temporary file of a failed write, if the folder allows it."""
    # Where the folder is not there, is no folder, or is read-only, nothing was written into it either.
    with suppress(OSError):
        part.unlink(missing_ok=True)


def refuse_input(target: Path, what: str, inputs: Iterable[Path | str | None]) -> None:
    """Before any work, refuse to write to a file or folder that is an input, lies in one or contains one.

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


MIN_UNPACKED_LIMIT, RATIO = 1 << 30, 100
"""An unpacked file may have MIN_UNPACKED_LIMIT bytes, or RATIO times the size of the packed file, whichever is larger."""

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def limit_unpacked_size(packed: int) -> int:
    """How many bytes a packed file of some size may unpack to."""
    return max(MIN_UNPACKED_LIMIT, RATIO * packed)


@final
class Archive:
    """The arrays of an archive, read one by one."""

    def __init__(self, members: zipfile.ZipFile, size: int, packed: bool) -> None:
        self._members, self._packed = members, packed
        self._left = limit_unpacked_size(size) if packed else size
        self._infos = {info.filename.removesuffix(".npy"): info for info in members.infolist()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._infos)

    def read(self, name: str) -> NDArray[Any]:
        """Read an array; its header must match the stored size before any data is read."""
        info = self._infos[name]
        if not info.filename.endswith(".npy") or (info.compress_type != zipfile.ZIP_STORED and not self._packed):
            kind = "NumPy" if self._packed else "stored NumPy"
            raise ValueError(f"member {info.filename!r} is not a {kind} array.")
        self._left -= info.file_size
        if self._left < 0:
            raise ValueError(
                f"its members unpack to more than {RATIO} times its size; with {name!r} they would. Save it again with "
                "numpy.savez, which does not pack."
            )
        with self._members.open(info) as member:
            shape, _, dtype = HEADERS[np.lib.format.read_magic(member)](member)
            size = int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize
            fits = min(shape, default=0) >= 0 and member.tell() + size == info.file_size
            if dtype.hasobject or dtype.itemsize == 0 or not fits:
                raise ValueError(
                    f"member {info.filename!r} says it is {shape} of {dtype}, which its {info.file_size} bytes are not, or "
                    "it holds pickled objects, which are not read."
                )
        with self._members.open(info) as member:
            return np.lib.format.read_array(member, allow_pickle=False)


@contextmanager
def open_archive(file: IO[bytes], packed: bool) -> Iterator[Archive]:
    """The archive in a file; a ``ValueError`` says why the file or an array in it cannot be read.

    ``packed``: whether its members may be compressed. Ours are not, so that none can be larger than the file.
    """
    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        with zipfile.ZipFile(file) as members:
            yield Archive(members, size, packed)
    except ValueError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # the disk, not the bytes on it
        # Of damaged bytes zipfile, the decompressors and numpy.lib.format make a dozen kinds of errors.
        raise ValueError(f"it is not an NPZ file, or is cut short ({type(error).__name__}: {error}).") from None
