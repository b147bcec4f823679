"""The operator: two reconcilers, each of which observes, plans, acts and reports."""
