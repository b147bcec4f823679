"""Workspaces: fetching a user's code safely onto a claim, and handing it to every worker unchanged."""
