"""The log's age and size, and what is saved before any of it goes."""
