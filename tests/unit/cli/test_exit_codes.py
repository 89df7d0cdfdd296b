"""Exit codes: every error of the tree has one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure import errors
from perdure.cli.exit_codes import CommandFailed, ExitCode, exit_code_of
from perdure.errors import PerdureError


def kinds(root: type[PerdureError] = PerdureError) -> Iterator[type[PerdureError]]:
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


def make(kind: type[PerdureError]) -> PerdureError:
    if kind is errors.MqttError:
        return errors.MqttError(0x97)
    if kind is errors.LoginRefused:
        return errors.LoginRefused(0x86, "x", 0)
    if kind is CommandFailed:
        return CommandFailed("x", ExitCode.NOT_FOUND)
    return kind("x")


@pytest.mark.parametrize(
    "kind",
    [kind for kind in kinds() if kind.__module__ in (errors.__name__, CommandFailed.__module__)],
)
def test_every_error_has_a_code(kind: type[PerdureError]) -> None:
    assert exit_code_of(make(kind)) is not ExitCode.OK


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 78),
        (errors.StorageLocked("x"), 75),
        (errors.StorageUnavailable("x"), 75),
        (errors.StorageCorrupt("x"), 65),
        (errors.FormatTooNew("x"), 65),
        (errors.Fenced("x"), 75),
        (errors.StorageFull("x"), 75),
        (errors.StartTimeout("x"), 75),
        (errors.AddressUnavailable("x"), 75),
        (errors.AddressUnavailable("x", permitted=False), 77),
        (errors.MqttError(0x87), 77),
        (errors.MqttError(0x88), 69),
        (errors.UsageError("x"), 70),
        (CommandFailed("x", ExitCode.EXPECTATION), 1),
    ],
)
def test_codes(error: PerdureError, code: int) -> None:
    assert exit_code_of(error) == code
