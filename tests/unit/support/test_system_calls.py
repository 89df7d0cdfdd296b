"""The reader of system calls, on a few lines as strace writes them."""

from __future__ import annotations

from pathlib import Path

from tests.support.system_calls import Call, read_calls, strace_command


def hexed(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def vector(text: str) -> str:
    return f'{{iov_base="{hexed(text)}", iov_len={len(text)}}}'


def test_calls_of_several_threads_keep_their_order() -> None:
    log, socket = hexed("/d/12.log"), hexed("socket:[7]")
    lines = [
        f'10 write(3<{log}>, "{hexed("one")}", 3) = 3',
        f"11 fdatasync(3<{log}> <unfinished ...>",
        f'10 write(3<{log}>, "{hexed("two")}", 3) = 3',
        "11 <... fdatasync resumed>)              = 0",
        f"10 writev(9<{socket}>, [{vector('a')}, {vector('b')}], 2) = 2",
        f"11 fdatasync(3<{log}>) = -1 EIO (Input/output error)",
        f"12 fsync(3<{log}> <unfinished ...>",
        "10 +++ exited with 0 +++",
    ]
    assert read_calls(lines) == [
        Call("write", "/d/12.log", b"one", 0, 0, 3),
        Call("fdatasync", "/d/12.log", b"", 1, 3, 0),
        Call("write", "/d/12.log", b"two", 2, 2, 3),
        Call("writev", "socket:[7]", b"ab", 4, 4, 2),
        Call("fdatasync", "/d/12.log", b"", 5, 5, -1),
        Call("fsync", "/d/12.log", b"", 6),
    ]


def test_the_command_leaves_the_traced_process_a_direct_child() -> None:
    command = strace_command(Path("out"), ["program", "argument"])
    assert command[0] == "strace"
    assert "-D" in command
    assert command[-4:] == ["-o", "out", "program", "argument"]
