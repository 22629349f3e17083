"""Peers of the field, run beside Tidegate on the same model, the same torch and the same load."""
