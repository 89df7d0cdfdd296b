"""The attacks by their names. One is added by a function below ``@attack``, in either module."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.hostile.wire import Attacker

Attack = Callable[[Attacker], None]
ATTACKS: dict[str, tuple[str, Attack]] = {}
"""What each attack does, and how, by its name."""


def attack(name: str, what: str) -> Callable[[Attack], Attack]:
    """Give an attack its name and say what it does."""

    def register(run: Attack) -> Attack:
        ATTACKS[name] = what, run
        return run

    return register
