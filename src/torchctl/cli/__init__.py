"""The commands: `torchctl` for operators and containers, `kubectl torchrun` for people who train."""
