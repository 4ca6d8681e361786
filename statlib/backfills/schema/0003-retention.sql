-- Retention of what operators asked for, and the index by which summaries are proved.

CREATE INDEX statlib_backfill_audit_age ON statlib_backfill_audit (observed_at);

-- The runtime role deletes no record but through this: a bounded number, none of the last day whatever it asks for, and
-- none that a backfill's row still names.
CREATE FUNCTION statlib_backfill_prune(which text, wanted timestamptz, cap integer,
  OUT removed bigint, OUT more boolean, OUT until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $prune$
BEGIN
  until := least(wanted, clock_timestamp() - interval '1 day');
  IF which = 'audit' THEN
    DELETE FROM statlib_backfill_audit WHERE audit_id IN (
      SELECT a.audit_id FROM statlib_backfill_audit a
      WHERE a.observed_at < until AND NOT EXISTS (SELECT FROM statlib_backfill b WHERE b.audit_id = a.audit_id)
      ORDER BY a.observed_at LIMIT least(cap, 1000));
    GET DIAGNOSTICS removed = ROW_COUNT;
    more := EXISTS (
      SELECT FROM statlib_backfill_audit a
      WHERE a.observed_at < until AND NOT EXISTS (SELECT FROM statlib_backfill b WHERE b.audit_id = a.audit_id));
  ELSIF which = 'requests' THEN
    DELETE FROM statlib_backfill_request WHERE (principal, route, stable_id, request_id) IN (
      SELECT r.principal, r.route, r.stable_id, r.request_id FROM statlib_backfill_request r
      WHERE r.observed_at < until ORDER BY r.observed_at LIMIT least(cap, 1000));
    GET DIAGNOSTICS removed = ROW_COUNT;
    more := EXISTS (SELECT FROM statlib_backfill_request r WHERE r.observed_at < until);
  ELSE
    RAISE EXCEPTION 'no such records' USING ERRCODE = 'invalid_parameter_value';
  END IF;
END
$prune$;

REVOKE ALL ON FUNCTION statlib_backfill_prune(text, timestamptz, integer) FROM PUBLIC;

GRANT EXECUTE ON FUNCTION statlib_backfill_prune(text, timestamptz, integer) TO statlib_runtime;

CREATE INDEX statlib_decision_of_reviewer ON statlib_decision (project_id, reviewer_id, decision_id);
