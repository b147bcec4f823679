"""Keeps a copy of a collection up to date: the watch state machine and its async shell."""
