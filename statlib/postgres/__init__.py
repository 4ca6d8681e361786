"""PostgreSQL: connections, the one transaction, migrations, roles and wake-ups. It knows no backfill."""
