"""Logs of a job's workers as one stream: of all workers or some, over attempts, with the ranks where they are known."""
