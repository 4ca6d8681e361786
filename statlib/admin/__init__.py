"""The admin boundary: one HTTP app and its one client.

Authorisation, idempotency, audit and typed answers live here, and nowhere else.
"""
