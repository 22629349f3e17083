"""What a tenant, a key or a tenant's use of a model may take: limits, and the units held of them.

`windows`, `limits`, `account`, `holding`, `pools` and `fields` are pure. `accounts.lua` is `account` once more, run by Valkey
(`valkey.py`), where the gateways' accounts meet; `keeper` is what a gateway talks to.
"""
