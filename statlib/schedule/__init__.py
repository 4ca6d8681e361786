"""Schedules: slots that are claimed once across hosts, and the jobs and runbooks that they run."""
