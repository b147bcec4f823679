"""Turns a TorchrunJob into its children and its status: observe, plan, act, status."""
