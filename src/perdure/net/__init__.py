"""Listeners and transports: bytes between sockets and connections, and nothing about sessions."""
