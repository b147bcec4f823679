"""What a job becomes: one module for each kind of child, each a function from values to a body in JSON form."""
