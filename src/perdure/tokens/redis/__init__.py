"""Tokens on Redis, one module for each kind of layout."""
