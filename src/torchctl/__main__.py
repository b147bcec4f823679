"""`python -m torchctl` is `torchctl`."""

from torchctl.cli.app import main

main()
