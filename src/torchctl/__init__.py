"""A Kubernetes operator for PyTorch distributed training, and the controller runtime it stands on."""
