"""The management API under /api/v1: the same gates and actions as the pages, spoken in JSON.

Shapes: plural nouns, opaque prefixed ids, cursor pages, RFC 3339 times in UTC, RFC 9457 problems, unknown
fields refused, what is not yours not found.
"""
