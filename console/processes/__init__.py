"""All processes of one machine under one parent: start, watch, restart, stop in order."""
