"""The archive as pages: every run with its outcome, duration, key figures and trend, as plain files.

    records     what the pages say of one run, read from its sealed folder once
    ledger      those records, kept beside the pages, so that an update reads new runs and no other
    trends      one small line for each runbook
    pages       records as HTML
    build       the update: what is new, and which pages that changes

Invariant: the pages are derived and may be thrown away; nothing in the archive is changed or removed by rendering.
"""
