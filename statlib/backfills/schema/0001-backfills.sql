-- Durable data backfills: one compact row for each stable id, its audit, its requests, its explicit validations.

CREATE TABLE statlib_backfill_transition (
  from_lifecycle text NOT NULL,
  to_lifecycle text NOT NULL,
  PRIMARY KEY (from_lifecycle, to_lifecycle)
);

INSERT INTO statlib_backfill_transition (from_lifecycle, to_lifecycle) VALUES
  ('pending', 'running'),
  ('running', 'paused'), ('running', 'blocked'), ('running', 'failed'), ('running', 'validating'),
  ('paused', 'running'), ('paused', 'validating'),
  ('blocked', 'running'), ('blocked', 'validating'),
  ('failed', 'running'), ('failed', 'validating'),
  ('validating', 'paused'), ('validating', 'completed'), ('validating', 'failed'), ('validating', 'blocked');

CREATE TABLE statlib_backfill_audit (
  audit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  principal text NOT NULL CHECK (char_length(principal) <= 200),
  authority text NOT NULL CHECK (char_length(authority) <= 40),
  action text NOT NULL CHECK (char_length(action) <= 80),
  stable_id text NOT NULL CHECK (char_length(stable_id) <= 128),
  request_id text NOT NULL CHECK (char_length(request_id) <= 128),
  run_id text NOT NULL DEFAULT '' CHECK (char_length(run_id) <= 128),
  payload jsonb NOT NULL CHECK (octet_length(payload::text) <= 4000),
  outcome text NOT NULL CHECK (char_length(outcome) <= 40),
  reason text CHECK (char_length(reason) <= 80),
  before jsonb NOT NULL CHECK (octet_length(before::text) <= 8000),
  after jsonb NOT NULL CHECK (octet_length(after::text) <= 8000),
  generation bigint,
  observed_at timestamptz NOT NULL
);

CREATE INDEX statlib_backfill_audit_of ON statlib_backfill_audit (stable_id, audit_id);

CREATE TABLE statlib_backfill_request (
  principal text NOT NULL CHECK (char_length(principal) <= 200),
  route text NOT NULL CHECK (char_length(route) <= 200),
  stable_id text NOT NULL CHECK (char_length(stable_id) <= 128),
  request_id text NOT NULL CHECK (char_length(request_id) <= 128),
  digest text NOT NULL CHECK (char_length(digest) = 64),
  outcome jsonb NOT NULL CHECK (octet_length(outcome::text) <= 16000),
  observed_at timestamptz NOT NULL,
  PRIMARY KEY (principal, route, stable_id, request_id)
);

CREATE INDEX statlib_backfill_request_age ON statlib_backfill_request (observed_at);

CREATE TABLE statlib_backfill (
  stable_id text PRIMARY KEY CHECK (stable_id ~ '^[a-z][a-z0-9-]{0,62}$'),
  lifecycle text NOT NULL DEFAULT 'pending' CHECK (lifecycle IN
    ('pending', 'running', 'paused', 'blocked', 'failed', 'validating', 'completed')),
  metadata jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(metadata::text) <= 2000),
  bound jsonb CHECK (jsonb_typeof(bound) = 'array' AND octet_length(bound::text) <= 2000),
  checkpoint jsonb CHECK (jsonb_typeof(checkpoint) = 'array' AND octet_length(checkpoint::text) <= 2000),
  validated jsonb CHECK (jsonb_typeof(validated) = 'array' AND octet_length(validated::text) <= 2000),
  generation bigint NOT NULL DEFAULT 0,
  claim_owner text CHECK (char_length(claim_owner) <= 128),
  claim_expires_at timestamptz,
  claimed_at timestamptz,
  attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  next_eligible_at timestamptz,
  failure_kind text CHECK (char_length(failure_kind) <= 40),
  diagnostic text CHECK (char_length(diagnostic) <= 500),
  diagnosed_at timestamptz,
  batch_rows integer CHECK (batch_rows > 0),
  pace jsonb CHECK (octet_length(pace::text) <= 2000),
  batches bigint NOT NULL DEFAULT 0,
  rows_selected bigint NOT NULL DEFAULT 0,
  rows_changed bigint NOT NULL DEFAULT 0,
  execution_ms bigint NOT NULL DEFAULT 0,
  validation_ms bigint NOT NULL DEFAULT 0,
  validation_outcome text CHECK (validation_outcome IN ('success', 'failure')),
  validation_diagnostic text CHECK (char_length(validation_diagnostic) <= 500),
  validation_at timestamptz,
  registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at timestamptz,
  advanced_at timestamptz,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  completed_at timestamptz,
  audit_id bigint,
  CHECK ((lifecycle = 'pending') = (bound IS NULL)),
  CHECK ((claim_owner IS NULL) = (claim_expires_at IS NULL)),
  CHECK (claim_owner IS NULL OR lifecycle IN ('running', 'validating')),
  CHECK ((lifecycle = 'completed') = (completed_at IS NOT NULL)),
  CHECK (lifecycle <> 'completed' OR validation_outcome = 'success')
);

CREATE TABLE statlib_backfill_validation (
  stable_id text PRIMARY KEY REFERENCES statlib_backfill,
  holder text CHECK (char_length(holder) <= 128),
  held_until timestamptz,
  disposition text CHECK (char_length(disposition) <= 40),
  outcome text CHECK (outcome IN ('success', 'failure', 'current-state')),
  diagnostic text CHECK (char_length(diagnostic) <= 500),
  evaluated_lifecycle text,
  request_id text CHECK (char_length(request_id) <= 128),
  observed_at timestamptz,
  CHECK ((holder IS NULL) = (held_until IS NULL))
);

-- What no statement may do to a row, whoever sends it. Positions are compared by the engine, which knows their types.
CREATE FUNCTION statlib_backfill_keep() RETURNS trigger LANGUAGE plpgsql AS $keep$
BEGIN
  IF NEW.generation < OLD.generation THEN
    RAISE EXCEPTION 'a generation never falls' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  IF OLD.bound IS NOT NULL AND NEW.bound IS DISTINCT FROM OLD.bound THEN
    RAISE EXCEPTION 'a bound is captured once' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  IF OLD.checkpoint IS NOT NULL AND NEW.checkpoint IS NULL THEN
    RAISE EXCEPTION 'a checkpoint is never forgotten' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  IF NEW.lifecycle <> OLD.lifecycle AND NOT EXISTS (
    SELECT 1 FROM statlib_backfill_transition t
    WHERE t.from_lifecycle = OLD.lifecycle AND t.to_lifecycle = NEW.lifecycle
  ) THEN
    RAISE EXCEPTION 'no such transition' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  IF OLD.lifecycle = 'completed' AND to_jsonb(NEW) - 'metadata' IS DISTINCT FROM to_jsonb(OLD) - 'metadata' THEN
    RAISE EXCEPTION 'a completed backfill is immutable' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END
$keep$;

CREATE TRIGGER statlib_backfill_keep BEFORE UPDATE ON statlib_backfill
  FOR EACH ROW EXECUTE FUNCTION statlib_backfill_keep();

GRANT USAGE ON SCHEMA public TO statlib_runtime;

GRANT SELECT ON statlib_backfill_transition TO statlib_runtime;

GRANT SELECT, INSERT ON statlib_backfill_audit, statlib_backfill_request TO statlib_runtime;

GRANT SELECT, INSERT (stable_id, metadata) ON statlib_backfill TO statlib_runtime;

GRANT UPDATE (lifecycle, metadata, bound, checkpoint, validated, generation, claim_owner, claim_expires_at, claimed_at,
  attempts, next_eligible_at, failure_kind, diagnostic, diagnosed_at, batch_rows, pace, batches, rows_selected,
  rows_changed, execution_ms, validation_ms, validation_outcome, validation_diagnostic, validation_at, started_at,
  advanced_at, changed_at, completed_at, audit_id) ON statlib_backfill TO statlib_runtime;

GRANT SELECT, INSERT, UPDATE ON statlib_backfill_validation TO statlib_runtime;
