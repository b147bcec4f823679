"""The reconciler of TorchrunQueues: it validates them, and keeps the KAI Queue and the objects that they own."""
