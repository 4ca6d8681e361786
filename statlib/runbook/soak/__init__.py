"""The soak: recorded decisions replayed by concurrent reviewers, while everything about them is observed."""
