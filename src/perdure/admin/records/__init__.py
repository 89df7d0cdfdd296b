"""Requests and results, a file for each resource with its part of the table."""
