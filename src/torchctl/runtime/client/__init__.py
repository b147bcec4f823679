"""The API server, seen from Python: requests as values, one transport, typed answers, a small tree of errors."""
