"""The embedded default: real MongoDB servers on loopback, started in a data folder or for the length of a block."""
