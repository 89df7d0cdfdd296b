"""How long the log is kept: the section `retention`."""

from __future__ import annotations

from typing import Annotated, Literal, final

from perdure.config.fields import about
from perdure.config.schema.section import DAY_S, GIB, MIB, Section


@final
class RetentionConfig(Section, frozen=True):
    """How long the log is kept. What a session has still to get outlives it."""

    time_s: Annotated[
        int, about("Age at which a generation is dropped; 0 = never.", unit="s", live=True, ge=0)
    ] = 7 * DAY_S
    bytes: Annotated[
        int,
        about(
            "Size of the log beyond which the oldest generation is dropped; 0 = no limit.",
            unit="bytes",
            live=True,
            ge=0,
        ),
    ] = 0
    generation_time_s: Annotated[
        int, about("Age at which a new generation is begun.", unit="s", live=True, ge=1)
    ] = 1 * DAY_S
    generation_bytes: Annotated[
        int, about("Size at which a new generation is begun.", unit="bytes", live=True, ge=1 * MIB)
    ] = 4 * GIB
    disk_bytes_max: Annotated[
        int,
        about(
            "Most disk space for the data directory; 0 = no limit.", unit="bytes", live=True, ge=0
        ),
    ] = 0
    disk_policy: Annotated[
        Literal["refuse", "drop_oldest"],
        about(
            "At `disk_bytes_max`: `refuse` publishes (reason code 0x97) or `drop_oldest` "
            "generation, and count what sessions lost by it.",
            live=True,
        ),
    ] = "refuse"
    keep_for: Annotated[
        tuple[str, ...],
        about(
            "Pipelines (`pipeline archive --name`, by default `archive`) that the log waits for: a "
            "generation beyond `time_s` stays until they have read it. `bytes` and `disk_policy` "
            "do not wait.",
            live=True,
        ),
    ] = ()
    check_interval_s: Annotated[
        int, about("Time between two looks at age and size.", unit="s", live=True, ge=1)
    ] = 60
