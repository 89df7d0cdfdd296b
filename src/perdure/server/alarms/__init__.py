"""Alarms: what an operator should know before clients tell."""
