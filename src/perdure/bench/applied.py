"""What applying the cluster's log costs a node, from its metrics: also one on another machine."""

from __future__ import annotations

from http.client import HTTPException
from typing import Final, NamedTuple, final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families

from perdure.bench.errors import BenchError

TIMEOUT_S: Final = 10.0

MESSAGES: Final = "perdure_cluster_applied_messages_total"
CPU_SECONDS: Final = "perdure_cluster_apply_cpu_seconds_sum"


class Applied(NamedTuple):
    """Since the node serves.

    Attributes:
        messages: that it has applied.
        cpu_s: CPU time that this took, seconds.
    """

    messages: float
    cpu_s: float


@final
class AppliedProbe:
    """Asks a node what it has applied.

    Args:
        url: of its metrics, as ``http://node:9100/metrics``.
        token: for ``metrics.token_file``; empty = it wants none.

    Raises:
        BenchError: that is no such address.
    """

    def __init__(self, url: str, token: str = "") -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise BenchError(f"{url}: not the address of metrics, as http://node:9100/metrics")
        headers = {
            "Accept": "text/plain",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }
        self._request = Request(url, headers=headers)  # noqa: S310
        self.url = url

    def look(self) -> Applied:
        """What it has applied so far.

        Raises:
            BenchError: it does not answer, or is no node of a cluster.
        """
        try:
            with urlopen(self._request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                text = answer.read().decode()
            found = {
                sample.name: sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name in (MESSAGES, CPU_SECONDS)
            }
        except (URLError, OSError, HTTPException, ValueError) as error:
            raise BenchError(f"{self.url}: {error}") from error
        if len(found) < len(Applied._fields):
            raise BenchError(f"{self.url}: no metrics of a cluster's node")
        return Applied(found[MESSAGES], found[CPU_SECONDS])
