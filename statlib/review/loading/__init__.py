"""Loaders: from the exports that reviewers already have, or from a seed, to one common result.

Invariant: nothing is dropped silently. A row is loaded or reported with its file, number and reason; what was made up
is named in the project's provenance.
"""
