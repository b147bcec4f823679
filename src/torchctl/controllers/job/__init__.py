"""From a TorchrunJob to its children and its status: observe, plan, act, status."""
