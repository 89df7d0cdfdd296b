"""File systems of their own for a broker's data: one that loses power, one that fills up.

They need root on Linux; ``VolumesUnavailable`` says why there are none.

``PowerVolume`` is an ext4 file system in a file. What a program writes stays in the pages of that
file system until it is synced (or the kernel finds time), and only then reaches the file. So a
copy of the file, taken while nobody writes, is the disk as a power cut leaves it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, final

from tests.support.bounds import HANG_S

MEBIBYTE: Final = 1024 * 1024


@final
class VolumesUnavailable(RuntimeError):
    """This machine does not let us mount file systems."""


class Volume:
    """A mounted file system.

    Attributes:
        path: where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.path = path

    def close(self) -> None:
        """Unmount it; harmless if it is not mounted."""
        if os.path.ismount(self.path):
            _run("umount", str(self.path))


@final
class PowerVolume(Volume):
    """An ext4 file system that forgets what was not synced when told to.

    Args:
        directory: holds its file and its mount point.
        size_bytes: of the file system.
    """

    def __init__(self, directory: Path, *, size_bytes: int = 256 * MEBIBYTE) -> None:
        super().__init__(directory / "volume")
        self._image = directory / "volume.img"
        with self._image.open("wb") as image:
            image.truncate(size_bytes)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()

    def lose_power(self) -> None:
        """Go on with what the disk has; nobody may have a file open."""
        copy = self._image.with_suffix(".copy")
        _run("cp", "--sparse=always", str(self._image), str(copy))
        # Unmounting writes what was unsynced after all, to the file that is thrown away.
        self.close()
        copy.replace(self._image)
        self._mount()

    def _mount(self) -> None:
        # The journal is written this often even if nobody asks: not within a test.
        _run("mount", "-o", "loop,commit=300", str(self._image), str(self.path))


@final
class SmallVolume(Volume):
    """A file system in memory of a few mebibytes, and a ballast that takes its room.

    Args:
        directory: holds its mount point.
        size_bytes: of the file system.
    """

    def __init__(self, directory: Path, *, size_bytes: int) -> None:
        super().__init__(directory / "small")
        _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(self.path))

    @property
    def free_bytes(self) -> int:
        """Room that is left."""
        return shutil.disk_usage(self.path).free

    def load(self, size_bytes: int) -> None:
        """Take room away (again: instead of what was taken before)."""
        self.unload()
        with (self.path / "ballast").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, size_bytes)

    def unload(self) -> None:
        """Give the room back."""
        (self.path / "ballast").unlink(missing_ok=True)


def _run(*command: str) -> None:
    if os.geteuid() != 0:
        raise VolumesUnavailable("only root can mount")
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=HANG_S)
    except FileNotFoundError as error:
        raise VolumesUnavailable(f"there is no {command[0]}") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise VolumesUnavailable(f"{command[0]}: {said}") from error
