"""The process around the broker: its event loop, its allocator, its descriptors."""

from __future__ import annotations

import asyncio
import ctypes
import resource
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, TypeAlias, TypeVar

T = TypeVar("T")
LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]
LoopChoice: TypeAlias = Literal["auto", "uvloop", "asyncio"]

_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
MMAP_BYTES: Final = 512 * 1024
"""Buffers from this size on are mapped by themselves; a read of a socket is less."""

ARENAS: Final = 2
"""Heaps of the process; glibc would take eight for each core. What one thread has freed lies there
for others: with eight, 23 of 63 MB were free and kept beside writes with topics of 60 KB."""

SWITCH_S: Final = 0.0005
"""How long a thread waits for the GIL before it asks for it. With Python's own 5 ms the end of a
sync was heard up to 5 ms late under load, at both ends of each cycle: PUBACK p99 beside who sends
new retained messages at full speed 110 to 155 ms, and 69 to 111 with this."""

OPEN_FILES_UNLIMITED: Final = 1 << 30


def loop_factory(choice: LoopChoice = "auto") -> LoopFactory:
    """The event loop to run on: uvloop where it is installed, else asyncio's own.

    Raises:
        ImportError: uvloop was asked for by name and is not installed.
    """
    if choice != "asyncio":
        try:
            import uvloop
        except ImportError:
            if choice == "uvloop":
                raise
        else:
            return uvloop.new_event_loop
    return asyncio.SelectorEventLoop


def run(main: Coroutine[Any, Any, T], *, loop: LoopChoice = "auto") -> T:
    """Run ``main`` to its end on a fresh event loop."""
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        return runner.run(main)


def settle_allocator() -> None:
    """Have large buffers given back to the system when they are freed, and threads share heaps.

    Else glibc learns from the first large packet that such buffers are common, keeps those that
    follow in its heap, and the process stays as large as its worst moment.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)
        mallopt(_M_ARENA_MAX, ARENAS)


def settle_threads() -> None:
    """Have the loop's thread give up the GIL soon when the commit thread asks for it.

    A sync that has ended is heard of when its thread gets the GIL. Compiled code gives it up only
    between the callbacks of the loop, to who has asked for it this long.
    """
    sys.setswitchinterval(SWITCH_S)


def raise_open_files() -> int:
    """Raise the soft limit of open files to the hard one: each connection is a descriptor.

    Returns:
        The limit that now holds.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            return soft  # macOS reports an unlimited hard limit that it does not grant
    return hard


def open_files() -> int:
    """How many files this process may have open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_UNLIMITED if soft == resource.RLIM_INFINITY else soft
