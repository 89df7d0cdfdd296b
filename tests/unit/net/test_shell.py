"""What stands where no connection is."""

from __future__ import annotations

from perdure.net.shell import NO_HANDLER


def test_no_handler_takes_everything_and_does_nothing() -> None:
    NO_HANDLER.receive(b"x")
    NO_HANDLER.pause_writing()
    NO_HANDLER.resume_writing()
    NO_HANDLER.close(0x8B)
    NO_HANDLER.connection_lost(None)
    assert not hasattr(NO_HANDLER, "__dict__")
