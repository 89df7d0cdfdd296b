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
    refusals_max: Annotated[
        int,
        about(
            "Lines in `repeat_window_s` for one kind of refusal (CONNECT, PUBLISH, SUBSCRIBE, "
            "protocol error) of one client for one reason, or of one address before it is known "
            "who it is; the rest is counted and told; 0 = no limit.",
            live=True,
            ge=0,
        ),
    ] = 5
    refusals_total_max: Annotated[
        int,
        about(
            "Lines in `repeat_window_s` for refusals of all clients, a quarter of them for one "
            "address at most; 0 = no limit.",
            live=True,
            ge=0,
        ),
    ] = 200


@final
class MetricsConfig(Section, frozen=True):
    """Prometheus."""

    bind: Annotated[
        str, about("`host:port` that serves `/metrics` over HTTP; empty = off.", unit="address")
    ] = ""
    token_file: Annotated[
        str,
        about(
            "File with the tokens that may read the metrics, as `http.token_file`; read again when "
            "it changes. Empty = everybody who reaches the address may.",
            unit="path",
        ),
    ] = ""
    cache_ms: Annotated[
        int,
        about(
            "How long the same text is given out: more scrapes than that cost the broker little.",
            unit="ms",
            ge=0,
            le=60_000,
        ),
    ] = 1_000
    connections_max: Annotated[
        int,
        about(
            "Connections at once; for one more, the one goes that has waited longest.",
            ge=1,
            le=65_536,
        ),
    ] = 64
    connect_rate: Annotated[
        int, about("Connections taken in a second, one scrape each; more wait.", ge=1, le=10_000)
    ] = 100
    timeout_s: Annotated[
        int, about("From the connection to the last byte of its answer.", unit="s", ge=1, le=3_600)
    ] = 10
