"""Traces: what goes between the broker and one client, or about one topic, for a while."""
