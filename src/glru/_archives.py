"""Reading NumPy archives (.npz) of any origin: nothing is unpickled, and nothing is allocated that the file does not hold."""

import errno
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, final

import numpy as np
from numpy.typing import NDArray

ROOM, RATIO = 1 << 30, 100
"""An unpacked file may have ROOM bytes, or RATIO times the size of the packed file if that is more."""

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def unpacked_limit(packed: int) -> int:
    """How many bytes a packed file of some size may unpack to."""
    return max(ROOM, RATIO * packed)


@final
class Archive:
    """The arrays of an archive, read one by one."""

    def __init__(self, members: zipfile.ZipFile, size: int, packed: bool) -> None:
        self._members, self._packed = members, packed
        self._left = unpacked_limit(size) if packed else size
        self._infos = {info.filename.removesuffix(".npy"): info for info in members.infolist()}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays."""
        return tuple(self._infos)

    def read(self, name: str) -> NDArray[Any]:
        """An array; its header must fit the bytes that are there before they are read."""
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
    """The archive in a file; a ``ValueError`` says why it is none, or why an array in it cannot be read.

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
