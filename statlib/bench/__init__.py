"""Benchmarks: paired within one run, on servers of their own; tests run them in miniature and trust no time."""
