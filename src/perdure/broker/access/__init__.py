"""Bans and withdrawn rights, for the clients that are here."""
