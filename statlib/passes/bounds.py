"""Every number that limits the records of operators' actions, once, with its unit and its source."""

RETENTION_PASS_MAX = 1_000  # records that one pass removes; well inside one transaction's oplog entry
OPERATION_LEASE_TTL_S = 10.0  # how long a dead process's operation keeps its repetition waiting
OPERATION_RENEWAL_S = 1.0  # also how soon another process's wish to cancel is noticed
OPERATIONS_LISTED_MAX = 200  # operations under way that one answer names
AUDIT_PAGE_MAX = 500  # audit records of one page
