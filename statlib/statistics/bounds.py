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
COUNTER_KEYS_MAX = 50_000  # fold 3, apply: keys of one row
COUNTER_BYTES_MAX = 8 * 1024 * 1024  # fold 3, apply: and what they take, well inside a 16 MiB document
CONTEXTS_KEPT_MAX = 64  # projects whose scopes and digests a process remembers: some hundred kilobytes each
PENDING_SETS_KEPT_MAX = 1_024  # documents' pending sets that a process remembers derived: some kilobytes each
PARITY_DIFFERENCES_MAX = 50  # differing counters that one comparison names
FENCE_LEASE_TTL_S = 60.0  # as a rebuild's: twice the write deadline; each chunk prolongs it
FENCE_CHUNK_DOCS_MAX = 200  # source documents of one transaction: saves of the project wait for it to end
PENDING_ENTRIES_MAX = 32  # fold 1, cap: entries of one document's set
PENDING_SET_BYTES_MAX = 48 * 1024  # fold 1, cap: bytes of one document's set, encoded, the new entry included
PENDING_ENTRY_BYTES_MAX = 8 * 1024  # fold 1: bytes of one entry; a larger one stales its families instead
OVERFLOW_RECORDED_MAX = 64  # fold 1, overflow: drops that are kept by name
FREE_RETRIES_MAX = 2  # fold 2, fold-only reloads: attempts that a fold cost, and that are not charged
FOLD_WRITER_GRACE_S = 300.0  # fold 5, disable: longer than the write deadline and any write begun within it
OVERLAY_STUDIES_MAX = 128  # fold 4: documents with anything pending that one read overlays
OVERLAY_ENTRIES_MAX = 1_024  # fold 4: entries that one read overlays
OVERLAY_AGE_MAX_S = 600.0  # fold 4: age of the oldest entry that a read overlays
FOLD_LEASE_TTL_S = 30.0  # fold 3, lease: renewed after each batch
FOLD_LEASE_LEFT_MIN_S = 20.0  # design, writing: a batch begins only with this much of its lease left
FOLD_BATCH_DOCS_MAX = 32  # fold 3: documents whose sets one transaction takes
FOLD_BATCH_ENTRIES_MAX = 32  # fold 3: entries of one transaction, each a ledger record of its one revision
FOLD_BATCHES_MAX = 16  # fold 3: batches of one turn on a project
FOLD_MIN_AGE_S = 0.5  # fold 3: a document whose newest entry is younger is left to its savers
FOLD_SWEEP_S = 60.0  # fold 3: the safety net's period
FOLD_SWEEP_AGE_S = 10.0  # fold 3: what the sweep takes for forgotten
FOLD_SWEEP_PROJECTS_MAX = 256  # fold 3: projects of one sweep
FOLD_TURNS_MAX = 4  # fold 3, placement: projects that one worker folds at a time
FOLD_POLL_S = 0.2  # design, signal: how often the partial index is asked
FOLD_YIELD_S = 30.0  # fold 3, yielding: how long a rebuild's request to be let in stands
LIVELOCK_SKIP_AFTER = 5  # fold 3, livelock: aborts in a row of one document's own batch before it is left for a moment
LIVELOCK_SKIP_S = 2.0  # fold 3, livelock: that moment
LIVELOCK_DISCARD_AFTER = 20  # fold 3, livelock: aborts in a row before the two-step discard
QUARANTINE_COPIES_MAX = 1_000  # fold 3, poison: records of a project that keep a copy of the entry
QUARANTINE_SOFT_MAX = 90_000  # fold 3, poison: records at which fold mode disables itself
QUARANTINE_HARD_MAX = 100_000  # fold 3, poison: records at which nothing more is recorded, and nothing is denied
QUARANTINE_RETENTION_S = 30 * 86_400  # fold 3, poison: the one way a record goes
HEARTBEAT_PERIOD_S = 30.0  # fold 3, heartbeat
HEARTBEAT_LIVE_S = 120.0  # fold 3, heartbeat
DELTA_LEDGER_AGE_MAX_S = 90 * 86_400  # fold 6, ledger capacity
