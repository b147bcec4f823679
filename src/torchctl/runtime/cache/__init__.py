"""Typed, indexed copies of what the API server holds, one informer per kind and selector."""
