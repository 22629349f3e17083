"""The serving plane: gateways, workers and agents, and the control app that tells them what to do."""
