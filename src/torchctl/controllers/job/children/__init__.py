"""Renders the children of a job: one module for each kind, each a function from values to a JSON body."""
