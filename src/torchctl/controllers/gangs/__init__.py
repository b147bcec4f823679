"""Gang schedulers: two interfaces, and one file each for those that jobs can be placed by."""
