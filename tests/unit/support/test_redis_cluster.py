"""Three real Redis servers as a cluster."""

from __future__ import annotations

import pytest

from tests.support.redis_cluster import CLUSTER_SLOTS, RedisCluster
from tests.support.resp import ReplyError


@pytest.mark.redis
@pytest.mark.slow
def test_a_cluster_shares_the_slots_and_moves_them() -> None:
    with RedisCluster() as cluster:
        first, second, _ = cluster.nodes
        slot = first.command("CLUSTER", "KEYSLOT", "a")
        owner = cluster.nodes[[0, 1, 2][int(str(slot)) * 3 // CLUSTER_SLOTS]]
        owner.command("SET", "a", "1")
        target = first if owner is not first else second
        cluster.move_slots([int(str(slot))], owner, target)
        assert target.command("GET", "a") == b"1"
        with pytest.raises(ReplyError, match="MOVED"):
            owner.command("GET", "a")


@pytest.mark.redis
@pytest.mark.slow
def test_the_owner_of_a_slot_is_one_of_the_nodes() -> None:
    with RedisCluster() as cluster:
        first, _, last = cluster.nodes
        assert cluster.owner_of(0) is first
        assert cluster.owner_of(CLUSTER_SLOTS - 1) is last
        assert cluster.url.startswith("redis+cluster://")
        assert cluster.url.endswith(f"@127.0.0.1:{first.port}")
        directories = [node.command("CONFIG", "GET", "dir") for node in cluster.nodes]
    assert len({str(reply) for reply in directories}) == 3
    with pytest.raises(OSError, match=r".*"):
        first.command("PING")
