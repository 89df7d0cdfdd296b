"""Perdure: an MQTT 3.1.1 and 5.0 broker that does not forget."""

__version__ = "0.1.0"
