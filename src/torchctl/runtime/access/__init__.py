"""Who may read what the process serves: bearer tokens, judged by the API server."""
