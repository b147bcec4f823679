"""The life of a job: stages, deadlines, stuck pods, and what is kept of what has ended."""
