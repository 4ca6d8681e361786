"""Domains that show how to bring one's own: no application needs them."""
