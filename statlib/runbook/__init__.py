"""Runbooks: parameters, steps, headless execution, and how their results look."""
