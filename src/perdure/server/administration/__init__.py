"""Answers administrators: the admin socket, and behind it a handler for each operation."""
