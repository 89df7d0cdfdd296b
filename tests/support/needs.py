"""What a test needs of the machine: without it the test is left out, and in CI it fails.

``PERDURE_CI`` says that this is CI, where everything has to be there.
"""

from __future__ import annotations

import os
from typing import Final, NoReturn

import pytest

CI: Final = bool(os.environ.get("PERDURE_CI"))


def missing(what: str) -> NoReturn:
    """Leave the present test out, or fail it in CI, for want of a server or a Java machine."""
    if CI:
        pytest.fail(f"{what} (CI has to have it: make peers)", pytrace=False)
    pytest.skip(what)
