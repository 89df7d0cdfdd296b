"""Handlers, one file for each resource."""
