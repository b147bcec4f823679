"""Fetches a user's code safely onto a claim, and hands it to every worker unchanged."""
