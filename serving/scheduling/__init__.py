"""PURE scheduling: data and `now` in, decisions out. No clock, no I/O, no torch, no Django.

`scheduler.Scheduler` is the entrance; its docstring is the contract with the worker's engine thread.
Works that expire in the queue come out of `Scheduler.expired(now)`: ask before every `next_batch`.
"""
