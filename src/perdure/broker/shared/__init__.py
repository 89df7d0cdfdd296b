"""Shared subscriptions: groups, their members and what comes back."""
