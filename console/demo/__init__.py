"""`manage.py demo`: two tenants with different promises on one real model, set up through ordinary actions."""
