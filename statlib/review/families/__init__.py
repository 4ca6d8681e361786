"""The families of counters: one module each, one registration each in ``catalogue.py``."""
