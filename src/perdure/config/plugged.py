"""Imports what a line of a registry names: storage backends, listeners, ways to authenticate.

A line names its code as ``module:name``, so that nothing is imported before it is asked for: each
may need an extra that others do without.
"""

from __future__ import annotations

import importlib
from typing import Any

from perdure.errors import ConfigError


def load(target: str, *, setting: str, what: str, extra: str = "") -> Any:
    """Import what a line names.

    Args:
        target: ``module:name``.
        setting: that asked for it.
        what: how an error calls it.
        extra: of our package that it needs; empty = none.

    Raises:
        ConfigError: a package of somebody else is missing.
    """
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("perdure"):
            raise
        hint = f"pip install 'perdure[{extra}]'" if extra else f"install {error.name}"
        raise ConfigError(
            f"{what} needs the package {error.name}", path=setting, hint=hint
        ) from error
