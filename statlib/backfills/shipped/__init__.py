"""Definitions that ship with statlib, over the loaded study records and decisions."""
