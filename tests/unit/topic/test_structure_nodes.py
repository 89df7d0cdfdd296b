"""Nodes of the learned structure: their records, and the streams below one."""

from __future__ import annotations

from perdure.topic.records import NodeRecord
from perdure.topic.structure_nodes import PLUS, Node, subtree


def test_a_node_is_a_stream_once_a_topic_ends_there() -> None:
    node = Node(7, 3, "a")
    assert node.record() == NodeRecord(node_id=7, parent_id=3, token="a", is_stream=False)
    node.levels = ("x", "a")
    assert node.record().is_stream
    assert (node.resolved.stream, node.resolved.varying, node.resolved.created) == (7, (), ())


def test_the_subtree_has_every_stream_and_no_other_node() -> None:
    root = Node(1, 0, "a")
    child = root.children["b"] = Node(2, 1, "b")
    child.levels = ("a", "b")
    varying = child.wildcard = Node(3, 2, PLUS)
    varying.levels = ("a", "b", PLUS)
    root.children["c"] = Node(4, 1, "c")
    assert {node.node_id for node in subtree(root)} == {2, 3}
    root.levels = ("a",)
    assert {node.node_id for node in subtree(root)} == {1, 2, 3}
    assert subtree(Node(9, 0, "z")) == []
