"""What pipelines have told of themselves: their cursors, and how their jobs are going."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from perdure.admin.operation import Request
from perdure.admin.records.pipeline import ListPipelines, PipelinePage
from perdure.broker.services import Services
from perdure.server.administration.paging import page_of
from perdure.server.administration.service import Call, Handler
from perdure.server.pipelines import load_pipelines, pipeline_of


@final
class PipelineOperations:
    """Answers what is asked of pipelines.

    Args:
        services: the parts of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {ListPipelines: self.list_page}

    async def list_page(self, request: ListPipelines, _call: Call) -> PipelinePage:
        """A page of all that have told of themselves."""
        services = self._services
        cursors, runs = await asyncio.to_thread(load_pipelines, Path(services.storage_config.path))
        end, now_us = services.database.last_offset, services.clock.wall_us()
        keys = sorted({*cursors, *runs})
        page, following = page_of(keys, request, "\0".join)
        return PipelinePage(
            items=[
                pipeline_of(*key, cursors.get(key), runs.get(key), end=end, now_us=now_us)
                for key in page
            ],
            next_cursor=following,
            estimated_total=len(keys),
        )
