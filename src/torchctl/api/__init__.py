"""torchrun.ai/v1alpha1: the two kinds that users write, and the foreign kinds that the operator reads. Pure data."""
