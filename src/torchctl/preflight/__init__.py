"""What a worker asks before it starts: programs of its init container, which know nothing of Kubernetes."""
