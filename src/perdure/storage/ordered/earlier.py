"""What the batches of a node have placed, as later ones of its name it.

Apart from ``view``, which is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, final, overload

IN_FLIGHT_MAX: Final = 256
"""Records that a node has on their way at once."""


@final
class Earlier(Sequence[int]):
    """Where the batches of a node before one of its have placed things, newest first.

    Args:
        placed: by slot, the number of a record and an offset.
        number: of the first record of the batch.
    """

    def __init__(self, placed: dict[int, tuple[int, int]], number: int) -> None:
        self._placed = placed
        self._number = number

    def __iter__(self) -> Iterator[int]:
        for number in range(self._number - 1, max(0, self._number - IN_FLIGHT_MAX), -1):
            of, offset = self._placed.get(number % IN_FLIGHT_MAX, (0, 0))
            if of == number:
                yield offset

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        # Seldom asked for, so nothing is kept for it.
        return list(self)[index]
