"""Every write of this app, one module per noun.

Each action takes keywords only, `by=` the actor, checks the right, and writes the change, its audit event
and its announcement in one transaction. Pages, API, commands and tasks all call the same function.
"""
