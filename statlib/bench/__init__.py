"""Benchmarks: paired within one run, on servers of their own, never run as tests."""
