"""Numbers of things as people write them."""

from __future__ import annotations

from typing import Final, final

import click

COUNT_MAX: Final = 10**12
_FACTORS: Final = {"k": 10**3, "M": 10**6, "G": 10**9}


@final
class Count(click.ParamType):  # type: ignore[type-arg]
    """A number from 1; k, M and G are thousands, millions and billions."""

    name = "count"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number."""
        if isinstance(value, int):
            return value
        text = str(value)
        factor = _FACTORS.get(text[-1:], 1)
        digits = text[:-1] if factor > 1 else text
        is_number = digits.isascii() and digits.isdigit()
        if not is_number or not 0 < int(digits) * factor <= COUNT_MAX:
            self.fail(f"{text!r} is no number from 1 to 1000G", param, ctx)
        return int(digits) * factor
