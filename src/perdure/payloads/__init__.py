"""Payloads as values: what bytes in one of several formats say, as JSON would say it."""
