"""Migrations are applied once and never edited; the restricted role can do its work, and nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import psycopg
import pytest

from statlib.backfills import SCHEMA
from statlib.kernel.refusals import Refusal
from statlib.local.postgres import RUNTIME_ROLE, SUPERUSER
from statlib.postgres.connection import connected
from statlib.postgres.migrations import migrate, require_schema
from statlib.postgres.reasons import PostgresReason
from statlib.postgres.transactions import transact
from tests.backfilling import bench, fill_notes
from tests.postgres import Database, Databases

FILES = sorted(path.stem for path in SCHEMA.glob("*.sql"))
FORBIDDEN = [
    "CREATE TABLE stray (id int)",
    "CREATE TEMPORARY TABLE stray (id int)",
    "CREATE SCHEMA stray",
    "CREATE ROLE stray",
    "CREATE FUNCTION stray() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "ALTER TABLE statlib_backfill ADD COLUMN stray int",
    "ALTER TABLE statlib_backfill DISABLE TRIGGER ALL",
    "DROP TABLE statlib_backfill_audit",
    "DROP TRIGGER statlib_backfill_keep ON statlib_backfill",
    "TRUNCATE statlib_backfill_audit",
    "DELETE FROM statlib_backfill",
    "DELETE FROM statlib_backfill_audit",
    "UPDATE statlib_backfill_audit SET outcome = 'Accepted'",
    "UPDATE statlib_backfill_request SET outcome = '{}'",
    "DELETE FROM statlib_backfill_request",
    "DELETE FROM statlib_backfill_validation",
    "UPDATE statlib_backfill SET stable_id = 'other'",
    "UPDATE statlib_backfill SET registered_at = now()",
    "INSERT INTO statlib_backfill (stable_id, lifecycle) VALUES ('forged', 'completed')",
    "INSERT INTO statlib_backfill_transition VALUES ('completed', 'running')",
    "UPDATE statlib_migration SET sha256 = ''",
    "DELETE FROM statlib_study_record",
    "TRUNCATE statlib_decision",
    "SELECT * FROM _yoyo_migration",
    "SELECT pg_read_file('/etc/hostname')",
    "COPY statlib_backfill TO PROGRAM 'true'",
    "SET ROLE statlib_admin",
    "SET SESSION AUTHORIZATION statlib_admin",
    "ALTER SYSTEM SET fsync = off",
    "SET session_replication_role = replica",
    "SET track_counts = off",
]


@pytest.mark.req("BF-MAP-02")
@pytest.mark.parametrize("statement", FORBIDDEN)
def test_the_restricted_role_may_not(database: Database, statement: str) -> None:
    with (
        psycopg.connect(database.server.address(RUNTIME_ROLE, database.name), autocommit=True) as runtime,
        pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable)) as refused,
    ):
        runtime.execute(statement.encode())
    assert isinstance(refused.value, psycopg.errors.InsufficientPrivilege)


def test_the_restricted_role_can_do_its_work(database: Database) -> None:
    fill_notes(database)
    with bench(database) as b:
        b.start()
        assert b.drive() == "completed"


def test_migrating_again_applies_nothing(database: Database) -> None:
    again = migrate(database.settings, [SCHEMA])
    assert (again.applied, list(again.present)) == ((), FILES)
    with connected(database.settings) as postgres:
        require_schema(postgres, [SCHEMA])


def test_an_edited_migration_that_was_applied_is_refused(database: Database, tmp_path: Path) -> None:
    edited = tmp_path / "schema"
    shutil.copytree(SCHEMA, edited)
    file = edited / f"{FILES[-1]}.sql"
    file.write_text(file.read_text(encoding="utf-8") + "\n-- a word more\n", encoding="utf-8")
    for check in (lambda: migrate(database.settings, [edited]), lambda: _held_against(database, edited)):
        with pytest.raises(Refusal) as refused:
            check()
        assert refused.value.reason is PostgresReason.MigrationEdited
        assert FILES[-1] in refused.value.detail


def test_a_database_ahead_of_this_release_is_told_apart_from_one_behind(database: Database, tmp_path: Path) -> None:
    older, newer = tmp_path / "older", tmp_path / "newer"
    shutil.copytree(SCHEMA, older)
    (older / f"{FILES[-1]}.sql").unlink()
    with pytest.raises(Refusal) as ahead:
        migrate(database.settings, [older])
    assert ahead.value.reason is PostgresReason.MigrationUnknown
    _held_against(database, older)  # what is there suffices: schemas only grow
    shutil.copytree(SCHEMA, newer)
    (newer / "9999-later.sql").write_text("CREATE TABLE later (id integer);", encoding="utf-8")
    with pytest.raises(Refusal) as behind:
        _held_against(database, newer)
    assert behind.value.reason is PostgresReason.SchemaIncompatible
    assert migrate(database.settings, [newer]).applied == ("9999-later",)


def test_a_migration_that_fails_leaves_nothing_of_itself(database: Database, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(SCHEMA, broken)
    (broken / "9999-broken.sql").write_text("CREATE TABLE half (id integer);\nSELECT 1 / 0;", encoding="utf-8")
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(database.settings, [broken])
    assert database.admin("SELECT to_regclass('half') IS NULL") == [(True,)]
    assert database.admin("SELECT count(*) FROM statlib_migration") == [(len(FILES),)]


def test_the_schema_is_what_the_files_say(database: Database) -> None:
    declared = "\n".join(path.read_text(encoding="utf-8") for path in sorted(SCHEMA.glob("*.sql")))
    tables = set(re.findall(r"^CREATE TABLE (\w+)", declared, re.MULTILINE))
    indexes = set(re.findall(r"^CREATE INDEX (\w+)", declared, re.MULTILINE))
    functions = set(re.findall(r"^CREATE FUNCTION (\w+)", declared, re.MULTILINE))
    stored = {row[0] for row in database.admin("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
    assert {name for name in stored if not name.startswith("_yoyo")} - {"yoyo_lock", "statlib_migration"} == tables
    secondary = database.admin(
        "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid"
        " WHERE NOT i.indisprimary AND t.relname LIKE 'statlib%%'"
    )
    assert {row[0] for row in secondary} == indexes
    made = database.admin("SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace")
    assert {row[0] for row in made} == functions
    for table in tables - {"statlib_backfill_transition"}:
        body = declared.partition(f"CREATE TABLE {table} (")[2].partition("\n);")[0]
        columns = set(re.findall(r"^  ([a-z_]+) [a-z]", body, re.MULTILINE))
        there = database.admin("SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0", table)
        assert {row[0] for row in there} == columns, table


def test_a_missing_runtime_role_is_named_with_its_remedy(postgres_databases: Databases, tmp_path: Path) -> None:
    made = postgres_databases.new(tmp_path, migrated=False)
    with psycopg.connect(postgres_databases.server.address(SUPERUSER, made.name), autocommit=True) as superuser:
        superuser.execute("ALTER ROLE statlib_runtime RENAME TO statlib_elsewhere")
        try:
            with pytest.raises(Refusal) as refused:
                migrate(made.settings, [SCHEMA])
        finally:
            superuser.execute("ALTER ROLE statlib_elsewhere RENAME TO statlib_runtime")
            password = postgres_databases.server.address(RUNTIME_ROLE).split(":")[2].split("@")[0]
            superuser.execute(f"ALTER ROLE statlib_runtime PASSWORD '{password}'".encode())
    assert refused.value.reason is PostgresReason.RuntimeRoleMissing
    postgres_databases.drop(made.name)


def test_a_read_only_transaction_refuses_every_write(database: Database) -> None:
    with connected(database.settings) as postgres, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        transact(postgres, lambda session: session.run("UPDATE statlib_decision SET summarised = true"), read_only=True)


def _held_against(database: Database, folder: Path) -> None:
    with connected(database.settings) as postgres:
        require_schema(postgres, [folder])
