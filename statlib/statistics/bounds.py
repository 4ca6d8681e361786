"""Every number of the specification that limits this engine, once, with its unit and its source.

Section numbers are those of the fold specification ("fold") and of the fleet operations page ("fleet").
"""

SAVE_ATTEMPTS_MAX = 3  # fold 2, unknown results: a save's budget of charged attempts
CLAIM_ATTEMPTS_MAX = 20  # definite aborts of a claim: nothing but its filter may say no to it
SUBMISSION_ROUNDS_MAX = 3  # definitions, arms: rounds of open and save
PRE_WRITE_DEADLINE_S = 30.0  # fold 2, pre-write deadline; the write gets what is left of it
DELTA_LEDGER_ROWS_MAX = 100_000  # fold 6, ledger capacity
PUBLICATION_SCOPES_MAX = 32  # rows published by one transaction; the batch bound of the fold
REBUILD_LEASE_TTL_S = 60.0  # twice the write deadline, so that a slow publication is not cut off
REBUILD_HELD_MAX_S = 1_800.0  # how long its leases are renewed at all: a count of ten million studies is over by then
REBUILD_RETRIES_MAX = 40  # races that a backfill may lose before it tells its caller
MEMBER_RENEWAL_S = 30.0  # fold 3, fleet membership
MEMBER_LIVE_S = 120.0  # fold 3: live within two minutes of its last renewal
MEMBER_RETENTION_S = 600  # fold 3: garbage collection only, never liveness
HOST_ALLOWLIST_MAX = 1_000  # fold 3: ids that one member may declare
COUNTER_KEYS_MAX = 100_000  # keys of one row, well inside a 16 MiB document
PARITY_DIFFERENCES_MAX = 50  # differing counters that one comparison names
FENCE_LEASE_TTL_S = 60.0  # as a rebuild's: twice the write deadline; each chunk prolongs it
FENCE_CHUNK_DOCS_MAX = 200  # source documents of one transaction: saves of the project wait for it to end
