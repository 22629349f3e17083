"""A signed webhook gets every audit event of a tenant, or of the platform, as a copy that lies elsewhere."""
