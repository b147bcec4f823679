"""The same work for controller-runtime, kopf and torchctl.runtime, on one API server, in turns."""
