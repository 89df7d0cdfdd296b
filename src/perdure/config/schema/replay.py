"""The section `replay`: what clients get that ask for the past."""

from __future__ import annotations

from typing import Annotated, Literal, final

from perdure.config.fields import about
from perdure.config.schema.section import MIB, Section


@final
class ReplayConfig(Section, frozen=True):
    """Subscriptions with `replay-from`."""

    archive: Annotated[
        Literal["auto", "on", "off"],
        about(
            "Whether what the log has dropped comes from the archive at `pipeline.tables.place`, "
            "which a process beside the broker reads. `auto`: if a place is named there, and "
            "the extra `perdure[spark]` is installed. Without it a replay begins where the log "
            "does."
        ),
    ] = "auto"
    waiting_max: Annotated[
        int,
        about(
            "Subscriptions that may wait for pages of the archive; a new one that would have to is "
            "refused (0x97). Those of sessions that come back wait whatever their number.",
            ge=1,
        ),
    ] = 1_000
    page_messages: Annotated[
        int, about("Messages of a page that is read at once.", ge=1, le=65_535)
    ] = 256
    page_bytes: Annotated[
        int,
        about(
            "Bytes of a page: of payloads, properties and topics. The first message comes whatever "
            "it has.",
            unit="bytes",
            ge=4_096,
        ),
    ] = 1 * MIB
    window_bytes: Annotated[
        int,
        about(
            "Bytes of rows that the process holds for a topic filter that it reads, about; for "
            "all of them 16 times that: of more than 16 filters at a time each has less.",
            unit="bytes",
            ge=64 * 1024,
        ),
    ] = 8 * MIB
    answer_timeout_s: Annotated[
        int,
        about(
            "Time for a page, after which the process is ended and another one is started: a "
            "store may hang.",
            unit="s",
            ge=1,
        ),
    ] = 60
    idle_s: Annotated[
        int, about("The process ends when nobody has asked it for so long.", unit="s", ge=1)
    ] = 60
