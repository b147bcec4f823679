"""The TorchrunQueue reconciler: validates the template and keeps the KAI Queue that it owns."""
