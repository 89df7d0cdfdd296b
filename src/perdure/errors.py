"""Every error that Perdure raises, as one tree.

::

    PerdureError                        code, hint
      ConfigError                       exit 78
      AddressUnavailable                an address that cannot be listened on now
      StartTimeout                      a part of the broker was not ready in time
      FilterInUse                       a stored content filter that cannot go, or one too many
      UsageError                        our own misuse of a pure API; a bug
      MqttError(reason_code)            a peer's fault: goes to the peer (more in ``mqtt.errors``)
      TargetUnavailable                 what a forwarder writes to does not take it now
      StorageError
        StorageUnavailable              retriable: the disk or the server is not there now
        StorageTimeout                  retriable
        StorageConflict                 retriable
        StorageFull                     terminal until there is space
        Fenced                          terminal: a stale epoch wrote
        StorageCorrupt                  terminal
        FormatTooNew                    terminal: written by a later release
        StorageLocked                   terminal: another process owns the directory
        LogTruncated                    terminal: the shared log has dropped what a node needs
        LogShorter                      terminal: the shared log has lost what a node has seen
        NodeNameTaken                   terminal: another process is this node of the cluster
        RecordTooLarge                  terminal: no record of the shared log holds it

Each class has a ``code`` that never changes; tests and clients compare codes, not texts.
"""

from __future__ import annotations

from typing import ClassVar, final


class PerdureError(Exception):
    """Root of the tree.

    Args:
        message: one sentence for a person.
        hint: what to do next, or empty.
    """

    code: ClassVar[str] = "perdure_error"

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@final
class ConfigError(PerdureError):
    """The configuration cannot be used; ``path`` names the setting (``listeners.tcp.port``)."""

    code = "config_invalid"

    def __init__(self, message: str, *, path: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path


@final
class FilterInUse(PerdureError):
    """A stored content filter that somebody subscribes with, or no room for one more."""

    code = "filter_in_use"


@final
class AddressUnavailable(PerdureError):
    """An address cannot be listened on; ``path`` names the setting.

    Args:
        message: one sentence for a person.
        permitted: False = this user may not have it; True = it may be there later.
        path: the setting.
        hint: what to do next, or empty.
    """

    code = "address_unavailable"

    def __init__(
        self, message: str, *, permitted: bool = True, path: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.permitted = permitted
        self.path = path


class TargetUnavailable(PerdureError):
    """What a forwarder writes to, or reads from, is not there now: it is tried again."""

    code = "target_unavailable"


@final
class StartTimeout(PerdureError):
    """Something that a start waits for did not come in time; it may the next time."""

    code = "start_timeout"


@final
class UsageError(PerdureError):
    """A pure API was called wrongly by our own code."""

    code = "usage"


class MqttError(PerdureError):
    """The peer broke the protocol or was refused.

    Args:
        reason_code: MQTT 5.0 reason code (section 2.4), 0x80 to 0xFF.
        message: sent as the Reason String where the peer allows it.
    """

    code = "mqtt_error"

    def __init__(self, reason_code: int, message: str = "") -> None:
        super().__init__(message)
        self.reason_code = reason_code


class LoginRefused(MqttError):
    """A client did not prove who it is.

    Args:
        reason_code: of the CONNACK.
        message: its Reason String.
        delay_us: how long the client waits for the answer.
    """

    code = "login_refused"

    def __init__(self, reason_code: int, message: str, delay_us: int) -> None:
        super().__init__(reason_code, message)
        self.delay_us = delay_us


class StorageError(PerdureError):
    """The store failed; ``retriable`` says whether the same call may succeed later."""

    code = "storage_error"
    retriable: ClassVar[bool] = False


@final
class StorageUnavailable(StorageError):
    """The disk or server is not there now: nothing of the call was committed."""

    code = "storage_unavailable"
    retriable = True


@final
class StorageTimeout(StorageError):
    """No answer in time: the call may or may not have been committed."""

    code = "storage_timeout"
    retriable = True


@final
class StorageConflict(StorageError):
    """Another writer was first."""

    code = "storage_conflict"
    retriable = True


@final
class StorageFull(StorageError):
    """No space left, on the disk or in the budget."""

    code = "storage_full"


@final
class Fenced(StorageError):
    """A write with a stale session epoch was refused."""

    code = "fenced"


@final
class StorageCorrupt(StorageError):
    """What was read is not what was written."""

    code = "storage_corrupt"


@final
class FormatTooNew(StorageError):
    """The data were written by a later release."""

    code = "format_too_new"


@final
class StorageLocked(StorageError):
    """Another process has the directory open."""

    code = "storage_locked"


@final
class LogTruncated(StorageError):
    """The shared log begins behind the position from which a node must read on."""

    code = "log_truncated"


@final
class LogShorter(StorageError):
    """The shared log ends before a position that a node has reached already."""

    code = "log_shorter"


@final
class NodeNameTaken(StorageError):
    """Another process has joined the cluster under the name of this one."""

    code = "node_name_taken"


@final
class RecordTooLarge(StorageError):
    """A batch does not fit into one record of the shared log."""

    code = "record_too_large"
