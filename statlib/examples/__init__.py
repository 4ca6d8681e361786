"""What no application needs: a domain that shows how to bring one's own, and a count of raw files by another route."""
