"""What a table is: validation, scaling and rows ready for training."""
