"""Durable state: the contract, and one room for each backend."""
