"""Gang schedulers: one interface, and one file each for those that jobs can be placed by."""
