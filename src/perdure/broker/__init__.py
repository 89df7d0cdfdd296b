"""The broker: who may do what, which session gets a message, and what is kept until it has."""
