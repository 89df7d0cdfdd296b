"""Runs of entries for backends that keep each entry by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod

from perdure.model import InboxEntry


class EntryByEntry(ABC):
    """The runs of ``storage.target.Target``, one entry after the other."""

    @abstractmethod
    def put_inbox(self, client_id: str, entry: InboxEntry) -> None:
        """Add or replace an entry of a private stream."""

    @abstractmethod
    def put_group_entry(self, group_key: str, entry: InboxEntry) -> None:
        """Add or replace a returned message of a group."""

    @abstractmethod
    def delete_group_entry(self, group_key: str, offset: int) -> None:
        """Take a returned message out of a group."""

    def put_inbox_run(self, client_id: str, entries: list[InboxEntry]) -> None:
        """``put_inbox`` for each."""
        for entry in entries:
            self.put_inbox(client_id, entry)

    def put_group_run(self, group_key: str, entries: list[InboxEntry]) -> None:
        """``put_group_entry`` for each."""
        for entry in entries:
            self.put_group_entry(group_key, entry)

    def delete_group_run(self, group_key: str, entries: list[InboxEntry]) -> None:
        """``delete_group_entry`` for each."""
        for entry in entries:
            self.delete_group_entry(group_key, entry.offset)
