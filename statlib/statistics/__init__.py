"""Materialised statistics: counters kept exact under concurrent saves, whatever the domain.

The engine knows a family only through ``catalogue.py``. Who does what:

    attempts      one save, whatever its arm        coordinator   what the transactional arm adds to it
    idempotency   whether a repeat may be written   arms          which arm an attempt takes
    reader        one bundle in one command         gates         why a bundle is not served
    rebuild       lease, capture, calculate         publication   candidate to visible row
    backfill      a family to Fresh, with proof     parity        stored against authoritative
    modes         opening and closing               hosts         who is alive, with which settings
"""
