"""Processes of our own, as the kernel sees them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from perdure.bench import proc

GONE = 2**22 + 1
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


def test_a_process_with_a_child() -> None:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert proc.children(parent.pid) == [child]
        assert proc.family(parent.pid) == [parent.pid, child]
        assert parent.pid in proc.family(os.getpid())
        assert proc.lives(child)
        os.kill(child, signal.SIGSTOP)
        os.kill(child, signal.SIGKILL)
    assert not proc.lives(child)


def test_one_that_waits_to_be_reaped_does_not_live() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert proc.state(process.pid) == "Z"
    assert not proc.lives(process.pid)
    process.wait()
    assert proc.state(process.pid) == proc.GONE


def test_of_one_that_is_gone_nothing_is_told() -> None:
    assert proc.stat_fields(GONE) == []
    assert proc.children(GONE) == []
    assert proc.family(GONE) == [GONE]
    assert not proc.lives(GONE)
