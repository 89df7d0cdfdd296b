"""The section `alarms`: from when on an operator is told."""

from __future__ import annotations

from typing import Annotated, final

from perdure.config.fields import about
from perdure.config.schema.section import Section


@final
class AlarmsConfig(Section, frozen=True):
    """What raises an alarm, and who is told. A threshold of 0 turns its alarm off."""

    check_interval_s: Annotated[
        int, about("Time between two looks; 0 = no alarms.", unit="s", ge=0)
    ] = 5
    raise_after_s: Annotated[
        int, about("How long a threshold must be passed.", unit="s", live=True, ge=0)
    ] = 10
    clear_after_s: Annotated[
        int,
        about(
            "How long it must be well again: four fifths of the threshold or less.",
            unit="s",
            live=True,
            ge=0,
        ),
    ] = 30
    disk_percent: Annotated[
        int,
        about(
            "`disk`: how full the file system of the data directory is.", live=True, ge=0, le=100
        ),
    ] = 85
    open_files_percent: Annotated[
        int, about("`open_files`: of those that the system allows.", live=True, ge=0, le=100)
    ] = 90
    loop_lag_ms: Annotated[
        int, about("`loop_lag`: how late the event loop is.", unit="ms", live=True, ge=0)
    ] = 500
    delivery_lag_s: Annotated[
        int,
        about(
            "`delivery_lag`: age of the oldest message that a connected client was sent and has "
            "not acknowledged.",
            unit="s",
            live=True,
            ge=0,
        ),
    ] = 600
    refused_rate: Annotated[
        int,
        about("`refused`: CONNECTs, PUBLISHes and filters refused in a second.", live=True, ge=0),
    ] = 50
    dropped_rate: Annotated[
        int,
        about(
            "`dropped`: messages in a second that a session was owed and does not get: "
            "`queue_full` and `retention`.",
            live=True,
            ge=0,
        ),
    ] = 1
    flapping_clients: Annotated[
        int, about("`flapping`: clients that are banned for flapping.", live=True, ge=0)
    ] = 1
    archive_wait_s: Annotated[
        int,
        about(
            "`archive_wait`: how long a replay has waited for a page of the archive.",
            unit="s",
            live=True,
            ge=0,
        ),
    ] = 60
    forwarder_lag_s: Annotated[
        int,
        about(
            "`forwarder_lag`: age of the oldest message that a forwarder has not handed over. One "
            "that is stopped (its target or its settings need somebody) raises it at once.",
            unit="s",
            live=True,
            ge=0,
        ),
    ] = 300
    forwarder_gaps: Annotated[
        int,
        about(
            "`forwarder_gaps`: forwarders that have missed messages within the last hour because "
            "retention dropped them first.",
            live=True,
            ge=0,
        ),
    ] = 1
    pipeline_late_s: Annotated[
        int,
        about(
            "`pipeline`: how long a job of `perdure pipeline run` has been overdue, has failed, or "
            "cannot reach its catalog, store or log.",
            unit="s",
            live=True,
            ge=0,
        ),
    ] = 900
    webhook_url: Annotated[
        str,
        about(
            "Where each change is sent by POST, `https://` or `http://`; empty = nowhere.",
            secret=True,
        ),
    ] = ""
    webhook_secret_file: Annotated[
        str,
        about("File with the secret that signs what is sent, 32 bytes or more.", unit="path"),
    ] = ""
