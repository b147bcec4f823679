"""The parts of a control plane that the fake API server lacks, as thin shells around pure rules."""
