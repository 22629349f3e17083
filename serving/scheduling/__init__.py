"""PURE scheduling: data and `now` in, decisions out. No clock, no I/O, no torch, no Django."""
