"""Exit codes (BSD sysexits, as other brokers use them) and how errors map onto them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, final

from perdure.errors import (
    AddressUnavailable,
    ConfigError,
    Fenced,
    FilterInUse,
    FormatTooNew,
    MqttError,
    NodeNameTaken,
    PerdureError,
    StartTimeout,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageLocked,
    TargetUnavailable,
    UsageError,
)
from perdure.mqtt.reason_codes import BAD_USERNAME_OR_PASSWORD, BANNED, NOT_AUTHORIZED


@final
class ExitCode(IntEnum):
    """What a script can tell from ``$?``."""

    OK = 0
    EXPECTATION = 1
    USAGE = 64
    DATA = 65
    NOT_FOUND = 67
    UNAVAILABLE = 69
    BUG = 70
    TEMPORARY = 75
    NOT_PERMITTED = 77
    CONFIG = 78
    INTERRUPTED = 130


MAY_BE_DONE: Final = (
    "what was asked for may still be done; perdure status tells what the broker waits for, as a "
    "node does whose Kafka is away"
)
"""The hint of a command that was asked, and got no answer in time."""


@final
class CommandFailed(PerdureError):
    """A command cannot do what was asked; says with which exit code to end."""

    code = "command_failed"

    def __init__(self, message: str, exit_code: ExitCode, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


_NOT_AUTHORISED: Final = frozenset({BAD_USERNAME_OR_PASSWORD, NOT_AUTHORIZED, BANNED})


def exit_code_of(error: PerdureError) -> ExitCode:
    """The exit code for an error that ends a command."""
    if isinstance(error, CommandFailed):
        return error.exit_code
    if isinstance(error, ConfigError | NodeNameTaken):
        return ExitCode.CONFIG
    if isinstance(error, AddressUnavailable):
        return ExitCode.TEMPORARY if error.permitted else ExitCode.NOT_PERMITTED
    if isinstance(error, MqttError):
        refused = error.reason_code in _NOT_AUTHORISED
        return ExitCode.NOT_PERMITTED if refused else ExitCode.UNAVAILABLE
    if isinstance(error, StorageCorrupt | FormatTooNew | FilterInUse):
        return ExitCode.DATA
    if isinstance(error, StartTimeout | TargetUnavailable):
        return ExitCode.TEMPORARY
    if isinstance(error, StorageLocked | StorageFull | Fenced):
        return ExitCode.TEMPORARY
    if isinstance(error, StorageError):
        return ExitCode.TEMPORARY if error.retriable else ExitCode.UNAVAILABLE
    assert isinstance(error, UsageError) or type(error) is PerdureError
    return ExitCode.BUG
