"""Proof that the audit trail is whole: the chain over its rows, signed checkpoints, and who verifies them."""
