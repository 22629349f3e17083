"""Reading an artifact as bytes, without any library that could run what it reads.

Each module takes a path and either returns or raises `Refused` with the reason. Nothing here imports
torch, numpy or pickle's loader: a scan must not be able to do what it looks for. Only what is known to be
harmless passes; a format's new feature is refused until somebody has read how it is loaded.
"""
