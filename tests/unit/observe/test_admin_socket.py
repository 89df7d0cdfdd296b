"""The address of the admin socket, however deep its directory is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from perdure.observe.admin_socket import SOCKET_NAME, SOCKET_PATH_BYTES_MAX, socket_address


def test_a_short_path_is_the_address() -> None:
    directory = Path("here")
    with socket_address(directory) as address:
        assert address == str(directory / SOCKET_NAME)


def test_a_long_path_is_reached_all_the_same(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * SOCKET_PATH_BYTES_MAX)
    directory.mkdir()
    with socket_address(directory) as address, socket.socket(socket.AF_UNIX) as listening:
        assert len(os.fsencode(address)) < SOCKET_PATH_BYTES_MAX
        listening.bind(address)
        assert (directory / SOCKET_NAME).is_socket()
    assert not Path(address).exists()


def test_a_directory_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * SOCKET_PATH_BYTES_MAX)
    with pytest.raises(FileNotFoundError), socket_address(directory):
        pass
