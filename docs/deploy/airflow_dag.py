"""One runbook as an Airflow DAG. It only calls ``statlib runbook run``; what the run ended as is its exit code.

Airflow's papermill operator would execute the notebook itself and take papermill's word for how it ended, so the
task runs statlib's own command, in the environment that has statlib. For Airflow 3; put this file in its DAGs folder.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    dag_id="statlib_soak_evidence",
    description="Executes the soak runbook headless and archives its report.",
    schedule="30 3 * * 0",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=3),
    tags=["statlib"],
) as dag:
    BashOperator(
        task_id="run",
        # exec, so that Airflow's SIGTERM reaches statlib, which releases leases and seals the report.
        bash_command=(
            "exec statlib runbook run soak_evidence "
            '-p duration_s="$DURATION_S" --archive "$ARCHIVE" --timeout 7200 --json'
        ),
        env={"DURATION_S": "3600", "ARCHIVE": "/reports"},
        append_env=True,
        retries=0,  # a run that was interrupted is looked at, not repeated
        execution_timeout=timedelta(hours=2, minutes=10),
    )
