"""The verifier's checks. Each is a function from what was read to findings; none raises for a bad bundle."""
