-- Every statement of the engine. Positions are JSON arrays; {forward} and {within} compare them in the key's types.

-- name: register
-- One row for a stable id, however often and in whatever order processes register it.
INSERT INTO statlib_backfill AS b (stable_id, metadata) VALUES (%(stable_id)s, %(metadata)s)
ON CONFLICT (stable_id) DO UPDATE SET metadata = excluded.metadata
WHERE b.metadata IS DISTINCT FROM excluded.metadata

-- name: read
-- Whether claims and delays hold is decided here, by the database's clock, and not by whoever reads.
SELECT b.*, {now} AS observed_at,
  claim_owner IS NOT NULL AND claim_expires_at > {now} AS claimed,
  lifecycle IN ('running', 'validating') AND (claim_owner IS NULL OR claim_expires_at <= {now})
    AND (next_eligible_at IS NULL OR next_eligible_at <= {now}) AS eligible,
  v.disposition AS explicit_disposition, v.outcome AS explicit_outcome, v.diagnostic AS explicit_diagnostic,
  v.evaluated_lifecycle AS explicit_lifecycle, v.request_id AS explicit_request_id, v.observed_at AS explicit_at
FROM statlib_backfill b LEFT JOIN statlib_backfill_validation v USING (stable_id)
WHERE (%(stable_id)s::text IS NULL OR stable_id = %(stable_id)s)
ORDER BY stable_id LIMIT %(limit)s

-- name: lock
-- Operators and resolvers of unknown commits take the row's lock first: a commit still under way is waited for.
SELECT b.*, {now} AS observed_at, claim_owner IS NOT NULL AND claim_expires_at > {now} AS claimed
FROM statlib_backfill b WHERE stable_id = %(stable_id)s FOR UPDATE

-- name: acquire
-- The least recently claimed row that is free and due. An abandoned claim counts as a try, so that work that kills
-- its worker each time ends as failed.
WITH free AS MATERIALIZED (
  SELECT stable_id FROM statlib_backfill
  WHERE stable_id = ANY(%(known)s) AND lifecycle IN ('running', 'validating')
    AND (claim_owner IS NULL OR claim_expires_at <= {now})
    AND (next_eligible_at IS NULL OR next_eligible_at <= {now})
  ORDER BY claimed_at NULLS FIRST, stable_id
  FOR UPDATE SKIP LOCKED LIMIT 1
)
UPDATE statlib_backfill b SET generation = b.generation + 1, claim_owner = %(owner)s,
  claim_expires_at = {now} + make_interval(secs => %(ttl_s)s), claimed_at = {now}, changed_at = {now},
  attempts = b.attempts + (b.claim_owner IS NOT NULL)::int
FROM free, statlib_backfill old
WHERE b.stable_id = free.stable_id AND old.stable_id = free.stable_id
RETURNING b.*, old.claim_owner IS NOT NULL AS taken_over

-- name: release
-- Released, the row keeps its lifecycle, and its generation until the next claim.
UPDATE statlib_backfill SET claim_owner = NULL, claim_expires_at = NULL, changed_at = {now}
WHERE stable_id = %(stable_id)s AND generation = %(generation)s AND claim_owner = %(owner)s
  AND lifecycle IN ('running', 'validating')

-- name: changes
-- What PostgreSQL itself counted as inserted, updated and deleted by this session, tables of the system left out.
-- Only the difference of two readings in one transaction means something.
SELECT current_setting('track_counts') = 'on' AS counted, coalesce(sum(pg_stat_get_xact_tuples_inserted(oid)
  + pg_stat_get_xact_tuples_updated(oid) + pg_stat_get_xact_tuples_deleted(oid)), 0)::bigint AS changes
FROM pg_class WHERE relkind IN ('r', 'p') AND oid >= 16384

-- name: changes_and_lock
-- The same reading after the mutation, with the row's lock: from now until the commit nobody pauses or takes over.
SELECT b.stable_id, (SELECT coalesce(sum(pg_stat_get_xact_tuples_inserted(oid)
  + pg_stat_get_xact_tuples_updated(oid) + pg_stat_get_xact_tuples_deleted(oid)), 0)::bigint
  FROM pg_class WHERE relkind IN ('r', 'p') AND oid >= 16384) AS changes
FROM statlib_backfill b WHERE stable_id = %(stable_id)s FOR UPDATE

-- name: commit_batch
-- The last statement of a batch. No row: the claim is no longer ours, the position is not ahead of the checkpoint or
-- beyond the bound, or the transaction lasted too long; then everything is rolled back.
UPDATE statlib_backfill SET checkpoint = %(position)s::jsonb, lifecycle = %(lifecycle)s,
  claim_expires_at = {now} + make_interval(secs => %(ttl_s)s), attempts = 0, next_eligible_at = NULL,
  failure_kind = NULL, diagnostic = NULL, diagnosed_at = NULL, validated = NULL,
  batch_rows = %(batch_rows)s, pace = %(pace)s, batches = batches + 1, rows_selected = rows_selected + %(selected)s,
  rows_changed = rows_changed + %(changed)s,
  execution_ms = execution_ms + round(extract(epoch FROM clock_timestamp() - transaction_timestamp()) * 1000),
  advanced_at = {now}, changed_at = {now}
WHERE stable_id = %(stable_id)s AND lifecycle = 'running' AND generation = %(generation)s
  AND claim_owner = %(owner)s AND claim_expires_at > {now}
  AND clock_timestamp() - transaction_timestamp() <= make_interval(secs => %(transaction_s)s)
  AND {forward} AND {within}

-- name: finish_mutation
-- No admitted work is left: what was mutated is to be validated. Never straight to completed.
UPDATE statlib_backfill SET lifecycle = 'validating', validated = NULL, attempts = 0, next_eligible_at = NULL,
  claim_expires_at = {now} + make_interval(secs => %(ttl_s)s), advanced_at = {now}, changed_at = {now}
WHERE stable_id = %(stable_id)s AND lifecycle = 'running' AND generation = %(generation)s
  AND claim_owner = %(owner)s AND claim_expires_at > {now}

-- name: commit_validation_step
-- How far this validation has come; the claim is renewed with it.
UPDATE statlib_backfill SET validated = %(position)s::jsonb, attempts = 0, next_eligible_at = NULL,
  claim_expires_at = {now} + make_interval(secs => %(ttl_s)s),
  validation_ms = validation_ms + %(duration_ms)s, changed_at = {now}
WHERE stable_id = %(stable_id)s AND lifecycle = 'validating' AND generation = %(generation)s
  AND claim_owner = %(owner)s AND claim_expires_at > {now}

-- name: complete_claimed
-- The only way to completed for a worker: validated, unpaused, not overtaken.
UPDATE statlib_backfill SET lifecycle = 'completed', completed_at = {now}, claim_owner = NULL, claim_expires_at = NULL,
  validation_outcome = 'success', validation_diagnostic = NULL, validation_at = {now}, attempts = 0,
  next_eligible_at = NULL, failure_kind = NULL, diagnostic = NULL, diagnosed_at = NULL,
  validation_ms = validation_ms + %(duration_ms)s, changed_at = {now}
WHERE stable_id = %(stable_id)s AND lifecycle = 'validating' AND generation = %(generation)s
  AND claim_owner = %(owner)s AND claim_expires_at > {now}

-- name: complete_asked
-- The same for an operator's validation, which has no claim: lifecycle and generation are those that it read first.
UPDATE statlib_backfill SET lifecycle = 'completed', completed_at = {now}, claim_owner = NULL, claim_expires_at = NULL,
  validation_outcome = 'success', validation_diagnostic = NULL, validation_at = {now}, attempts = 0,
  next_eligible_at = NULL, failure_kind = NULL, diagnostic = NULL, diagnosed_at = NULL, changed_at = {now}
WHERE stable_id = %(stable_id)s AND lifecycle = 'validating' AND generation = %(generation)s

-- name: fail_asked
-- An operator's validation that rejected a validating row, under the same fence.
UPDATE statlib_backfill SET lifecycle = %(lifecycle)s, generation = generation + 1, claim_owner = NULL,
  claim_expires_at = NULL, validation_outcome = 'failure', validation_diagnostic = %(diagnostic)s,
  validation_at = {now}, failure_kind = %(kind)s, diagnostic = %(diagnostic)s, diagnosed_at = {now}, changed_at = {now}
WHERE stable_id = %(stable_id)s AND lifecycle = 'validating' AND generation = %(generation)s

-- name: record_failure
-- Classified and durable before anybody says that it was handled. The claim ends with it.
UPDATE statlib_backfill SET lifecycle = %(lifecycle)s, attempts = %(attempts)s,
  next_eligible_at = CASE WHEN %(delay_s)s::float8 IS NULL THEN NULL ELSE {now} + make_interval(secs => %(delay_s)s) END,
  failure_kind = %(kind)s, diagnostic = %(diagnostic)s, diagnosed_at = {now},
  batch_rows = coalesce(%(batch_rows)s, batch_rows), pace = coalesce(%(pace)s::jsonb, pace),
  claim_owner = NULL, claim_expires_at = NULL, changed_at = {now},
  validation_outcome = CASE WHEN %(rejected)s THEN 'failure' ELSE validation_outcome END,
  validation_diagnostic = CASE WHEN %(rejected)s THEN %(diagnostic)s ELSE validation_diagnostic END,
  validation_at = CASE WHEN %(rejected)s THEN {now} ELSE validation_at END
WHERE stable_id = %(stable_id)s AND lifecycle IN ('running', 'validating') AND generation = %(generation)s
  AND claim_owner = %(owner)s AND claim_expires_at > {now}

-- name: note_yield
-- A worker that rests for the foreground says so where operators look, and keeps its claim.
UPDATE statlib_backfill SET pace = %(pace)s, claim_expires_at = {now} + make_interval(secs => %(ttl_s)s)
WHERE stable_id = %(stable_id)s AND generation = %(generation)s AND claim_owner = %(owner)s
  AND claim_expires_at > {now} AND lifecycle IN ('running', 'validating')

-- name: start
-- The bound is captured in the transaction that starts it.
UPDATE statlib_backfill SET lifecycle = 'running', bound = %(bound)s::jsonb, generation = generation + 1,
  batch_rows = %(batch_rows)s, started_at = {now}, changed_at = {now}, audit_id = %(audit_id)s
WHERE stable_id = %(stable_id)s AND lifecycle = 'pending' AND generation = %(generation)s

-- name: pause
-- Whatever is in flight meets another generation at its commit.
UPDATE statlib_backfill SET lifecycle = 'paused', generation = generation + 1, claim_owner = NULL,
  claim_expires_at = NULL, next_eligible_at = NULL, changed_at = {now}, audit_id = %(audit_id)s
WHERE stable_id = %(stable_id)s AND lifecycle IN ('running', 'validating') AND generation = %(generation)s

-- name: resume
-- To where work is left. A validation begins anew.
UPDATE statlib_backfill SET lifecycle = %(lifecycle)s, generation = generation + 1, validated = NULL,
  next_eligible_at = NULL, changed_at = {now}, audit_id = %(audit_id)s
WHERE stable_id = %(stable_id)s AND lifecycle = 'paused' AND generation = %(generation)s

-- name: retry
-- Fresh intent: tries and diagnostics are forgotten; bound, checkpoint and history stay.
UPDATE statlib_backfill SET lifecycle = %(lifecycle)s, generation = generation + 1, attempts = 0,
  next_eligible_at = NULL, failure_kind = NULL, diagnostic = NULL, diagnosed_at = NULL, validated = NULL,
  batch_rows = %(batch_rows)s, changed_at = {now}, audit_id = %(audit_id)s
WHERE stable_id = %(stable_id)s AND lifecycle IN ('blocked', 'failed') AND generation = %(generation)s

-- name: readiness
-- What the gate is derived from: lifecycles of the required ids, as they are now.
SELECT stable_id, lifecycle FROM statlib_backfill WHERE stable_id = ANY(%(required)s)

-- name: standing
-- What gauges show of all rows together. No id leaves; each combination is a row, so that the answer stays small.
SELECT lifecycle, coalesce(failure_kind, 'none') AS failure_kind, coalesce(validation_outcome, 'unknown') AS validation,
  count(*) AS backfills, sum(batches)::bigint AS batches, sum(rows_selected)::bigint AS rows_selected,
  sum(rows_changed)::bigint AS rows_changed, sum(execution_ms)::bigint AS execution_ms,
  sum(validation_ms)::bigint AS validation_ms,
  count(*) FILTER (WHERE claim_expires_at > {now}) AS claims_held,
  count(*) FILTER (WHERE claim_expires_at <= {now}) AS claims_run_out,
  count(*) FILTER (WHERE attempts > 0) AS retried,
  max(extract(epoch FROM {now} - coalesce(advanced_at, started_at)))::float8 AS since_progress_s
FROM statlib_backfill GROUP BY 1, 2, 3

-- name: hold_validation
-- One validation of a stable id at a time, worker's or operator's; a dead one's hold runs out.
INSERT INTO statlib_backfill_validation AS v (stable_id, holder, held_until)
VALUES (%(stable_id)s, %(holder)s, {now} + make_interval(secs => %(hold_s)s))
ON CONFLICT (stable_id) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
WHERE v.holder IS NULL OR v.held_until <= {now} OR v.holder = excluded.holder

-- name: end_validation
-- Harmless where the hold was lost.
UPDATE statlib_backfill_validation SET holder = NULL, held_until = NULL
WHERE stable_id = %(stable_id)s AND holder = %(holder)s

-- name: keep_outcome
-- The latest explicit validation, and the end of its hold. No row: somebody else holds it now.
UPDATE statlib_backfill_validation SET holder = NULL, held_until = NULL, disposition = %(disposition)s,
  outcome = %(outcome)s, diagnostic = %(diagnostic)s, evaluated_lifecycle = %(lifecycle)s, request_id = %(request_id)s,
  observed_at = {now}
WHERE stable_id = %(stable_id)s AND holder = %(holder)s

-- name: record_audit
-- Append only: the runtime role may neither change nor delete what is here.
INSERT INTO statlib_backfill_audit (principal, authority, action, stable_id, request_id, run_id, payload, outcome,
  reason, before, after, generation, observed_at)
VALUES (%(principal)s, %(authority)s, %(action)s, %(stable_id)s, %(request_id)s, %(run_id)s, %(payload)s, %(outcome)s,
  %(reason)s, %(before)s, %(after)s, %(generation)s, {now})
RETURNING audit_id

-- name: remember
-- The primary key lets one of two equal requests win.
INSERT INTO statlib_backfill_request (principal, route, stable_id, request_id, digest, outcome, observed_at)
VALUES (%(principal)s, %(route)s, %(stable_id)s, %(request_id)s, %(digest)s, %(outcome)s, {now})

-- name: recall
-- What an accepted request was answered.
SELECT digest, outcome FROM statlib_backfill_request
WHERE principal = %(principal)s AND route = %(route)s AND stable_id = %(stable_id)s AND request_id = %(request_id)s

-- name: prune
-- The schema's own function: the runtime role deletes by no other way.
SELECT removed, more, until AS before
FROM statlib_backfill_prune(%(records)s, {now} - make_interval(secs => %(kept_s)s), %(cap)s::integer)

-- name: audit_trail
-- Newest first, a page at a time.
SELECT audit_id, principal, authority, action, stable_id, request_id, run_id, outcome, reason, before, after, generation,
  observed_at
FROM statlib_backfill_audit
WHERE stable_id = %(stable_id)s AND (%(before_id)s::bigint IS NULL OR audit_id < %(before_id)s)
ORDER BY audit_id DESC LIMIT %(limit)s

-- name: preview_source
-- The planner's estimate; unknown, and not nought, for a table that was never analysed.
SELECT CASE WHEN c.reltuples < 0 THEN NULL ELSE c.reltuples::bigint END AS rows,
  CASE WHEN c.oid IS NULL THEN NULL ELSE pg_total_relation_size(c.oid) END AS bytes
FROM (SELECT to_regclass(%(source)s) AS oid) named LEFT JOIN pg_class c ON c.oid = named.oid

-- name: preview_index
-- An index whose leading columns are the key's, in the key's order: without one each batch would scan the table.
SELECT i.indexrelid::regclass::text AS name
FROM pg_index i
WHERE i.indrelid = to_regclass(%(source)s) AND i.indisvalid AND (
  SELECT array_agg(a.attname::text ORDER BY k.place)
  FROM unnest(i.indkey::smallint[]) WITH ORDINALITY k(attnum, place)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
  WHERE k.place <= cardinality(%(names)s::text[])
) = %(names)s::text[]
ORDER BY i.indisunique DESC, 1 LIMIT 1
