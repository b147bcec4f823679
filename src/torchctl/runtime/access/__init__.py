"""Access control for served pages: the API server reviews each bearer token."""
