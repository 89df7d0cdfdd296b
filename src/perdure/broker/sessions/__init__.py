"""The life of a session: opened, taken over, kept, expired."""
