"""What a person's program does with torchctl's kinds; the commands are a face of it."""
