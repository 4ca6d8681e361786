"""MongoDB mechanisms, each once: connection and probe, transactions, fenced leases, server time, stored documents."""
