"""Faults at chosen moments: processes that die, calls that are interrupted, disks that fill up. Nothing depends on time."""

import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

resource = pytest.importorskip("resource", reason="limits of a process need POSIX")

PACKAGE = str(Path(__import__("glru").__file__).parent)


def in_a_child(work):
    """Do work in a child process; the number of the signal that killed it, or 0 where it ended by itself."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            sys.__stderr__.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def dies_at_byte(count):
    """From now on this process is killed, by the system, by a write that makes a file longer than so many bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def dies_at_call(name, count, before):
    """This process is killed at the call of a function of ``os``, of that number, before or after it did its work."""
    function, seen = getattr(os, name), 0

    def call(*arguments, **named):
        nonlocal seen
        seen += 1
        if seen == count and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*arguments, **named)
        if seen == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(os, name, call)


@contextmanager
def full_disk(count):
    """No file can be made longer than so many bytes: the write that tries to fails, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def interrupted(work, count):
    """Do work that Ctrl-C interrupts at the call, of that number, of a function of the package; whether it came so far."""
    seen = 0

    def profile(frame, event, argument):
        nonlocal seen
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            seen += 1
            if seen == count:
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return seen >= count


def calls(work):
    """How many calls of functions of the package some work makes."""
    seen = 0

    def profile(frame, event, argument):
        nonlocal seen
        seen += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen
