"""The management API for Python programs, and the `tidegate` command line on top of it.

    from tidegate import Tidegate

    with Tidegate("http://127.0.0.1:8000", key="tg_…") as tidegate:
        for key in tidegate.keys.list():
            print(key["name"], key["last_used_at"])

It knows the wire only, and nothing of the platform behind it.
"""

from tidegate.api import Tidegate
from tidegate.errors import Refused, Unreachable

__all__ = ["Refused", "Tidegate", "Unreachable"]
