"""Bounded work and its records: what every operation leaves behind, whatever its system."""
