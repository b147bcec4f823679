"""What tests of a controller need: a real control plane, a scripted kubelet, a proxy that injects faults."""
