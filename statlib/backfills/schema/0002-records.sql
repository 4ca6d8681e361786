-- Loaded study records and decisions: what the shipped definitions repair.

CREATE TABLE statlib_study_record (
  project_id uuid NOT NULL,
  study_id uuid NOT NULL,
  title text NOT NULL,
  year integer,
  doi text,
  doi_canonical text,
  PRIMARY KEY (project_id, study_id)
);

CREATE TABLE statlib_decision (
  decision_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project_id uuid NOT NULL,
  study_id uuid NOT NULL,
  reviewer_id uuid NOT NULL,
  decision text NOT NULL,
  summarised boolean NOT NULL DEFAULT false
);

CREATE TABLE statlib_reviewer_summary (
  project_id uuid NOT NULL,
  reviewer_id uuid NOT NULL,
  decisions bigint NOT NULL DEFAULT 0,
  included bigint NOT NULL DEFAULT 0,
  excluded bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (project_id, reviewer_id)
);

-- The form in which equal identifiers have equal text: without resolver, prefix, blanks and case.
CREATE FUNCTION statlib_canonical_doi(doi text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $canonical$
  SELECT nullif(regexp_replace(lower(btrim(doi, E' \t\r\n')),
    '^((https?://)?(dx\.)?doi\.org/|doi:?\s*)|[\s.,;]+$', '', 'g'), '')
$canonical$;

GRANT SELECT, INSERT, UPDATE ON statlib_study_record, statlib_decision, statlib_reviewer_summary TO statlib_runtime;
