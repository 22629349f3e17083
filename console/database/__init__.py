"""Django's PostgreSQL backend with a pool that recovers at once."""
