"""From the log to whoever is connected: who subscribes, and in which order each is told."""
