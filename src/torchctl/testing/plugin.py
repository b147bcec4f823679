"""The pytest plugin: fixtures for a control plane and its namespaces."""
