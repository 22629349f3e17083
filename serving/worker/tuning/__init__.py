"""Variant tuning inside a worker process: one candidate, loaded, measured and compared with the reference."""
