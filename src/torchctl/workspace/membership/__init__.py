"""Which launchers of a job run together: the rules (`core`) and what is said between them (`messages`)."""
