"""Seeds of tests that choose one themselves."""

from __future__ import annotations

import os
import random


def chosen_seed() -> str:
    """A seed that the caller prints: one that no run had, unless the environment names one.

    ``PERDURE_SEED`` does so for all tests, ``PERDURE_CHOSEN_SEED`` only for those that ask here: CI
    runs what failed a second time, with the same seed.
    """
    named = os.environ.get("PERDURE_SEED") or os.environ.get("PERDURE_CHOSEN_SEED")
    return named or str(random.SystemRandom().randrange(10**9))
