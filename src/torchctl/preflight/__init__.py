"""Checks that a worker's init container runs before the worker starts. They do not use Kubernetes."""
