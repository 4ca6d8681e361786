"""Every number that bounds a schedule, and where it comes from."""

from __future__ import annotations

RECORDED_MAX = 32  # slots recorded one by one in an evaluation, the seeds' pass bound; older ones share a range record
ATTEMPTS_MAX = 2  # runs of one slot under on_interruption = "run_again": the second is the last
SCHEDULES_MAX = 256  # entries of a schedule file, as many projects as the seeds let a run visit
DURATION_MAX_S = 14 * 86_400  # twice the soak's seven days
CLAIMS_MAX = 3  # claims of one slot whose run could not be begun; then it has failed
HOOK_BACK_OFF_S = 2.0  # wait before a hook's second attempt; doubles from there
HOOK_CLAIM_MARGIN_S = 30.0  # a delivery is another host's to repeat this long after its own limits have passed
DETAIL_MAX = 500  # characters of a failure's detail that are kept
STOP_GRACE_S = 30.0  # a run that was stopped has this long to end by itself; the notebook engine takes 20 of them
