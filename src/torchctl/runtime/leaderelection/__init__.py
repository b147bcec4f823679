"""Leader election: a pure decision core, its async shell, and the fence that refuses late writes."""
