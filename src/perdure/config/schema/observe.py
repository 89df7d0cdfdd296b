"""What the broker tells of itself: the sections `sys`, `log` and `metrics`."""

from __future__ import annotations

from typing import Annotated, Literal, final

from perdure.config.fields import about
from perdure.config.schema.section import Section


@final
class SysConfig(Section, frozen=True):
    """The `$SYS/broker/` topics."""

    interval_s: Annotated[
        int, about("Time between two updates; 0 = no `$SYS` topics.", unit="s", ge=0)
    ] = 10


@final
class LogConfig(Section, frozen=True):
    """What the broker tells on standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], about("Least level written.", live=True)
    ] = "info"
    format: Annotated[
        Literal["auto", "console", "json"],
        about("`auto` is `console` on a terminal and `json` otherwise.", live=True),
    ] = "auto"
    repeat_max: Annotated[
        int,
        about(
            "Times that one event is written in `repeat_window_s`; the rest is counted and "
            "told with the next one; 0 = no limit.",
            live=True,
            ge=0,
        ),
    ] = 20
    repeat_window_s: Annotated[int, about("Window of `repeat_max`.", unit="s", live=True, ge=1)] = (
        10
    )


@final
class MetricsConfig(Section, frozen=True):
    """Prometheus."""

    bind: Annotated[
        str,
        about("`host:port` that serves `/metrics` over HTTP; empty = off.", unit="address"),
    ] = ""
