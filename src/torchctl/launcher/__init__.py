"""The first process of a worker whose code can change while it runs; `launcher.py` is all that gets into its pod."""
