"""Every number that limits backfills, once, with its unit and its source."""

ROWS_MAX = 100_000  # rows that a definition may ask for in one batch; more would hold locks for too long
TRANSACTION_S_MAX = 60.0  # seconds that a definition may let one transaction last
ATTEMPTS_MAX = 50  # tries without progress that a definition may ask for
KEY_COLUMNS_MAX = 8  # columns of an ordering key
DIAGNOSTIC_CHARS_MAX = 500  # as the table's CHECK says
METADATA_BYTES_MAX = 2_000  # as the table's CHECK says
CHANGES_PER_ROW_MAX = 16  # rows that a definition may change for each row that it selects
CLAIM_MARGIN = 2.0  # a claim lasts this many times the longest batch or validation step, at least
LISTED_MAX = 1_000  # backfills that one answer lists
FLOOR_ROWS = 10  # the fewest rows a batch shrinks to, where a definition names no other floor
RETENTION_PASS_MAX = 1_000  # records that one pass removes, as the schema's function says
