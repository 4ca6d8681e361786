"""The systematic-review domain: its documents, writers, families and loaders. The engine never imports it."""
