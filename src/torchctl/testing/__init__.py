"""Tools to test controllers: a real control plane, a scripted kubelet, a proxy that injects faults."""
