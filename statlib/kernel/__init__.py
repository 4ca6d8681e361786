"""The ground floor: what every other floor may rely on, and nothing that knows a database."""
