"""Loops and servers that run beside an application: one process each, as many as an operator likes."""
