"""Where alerts are told: one module per kind, each a pure rendering of a notification as that receiver reads it."""
