"""Training: Algorithm 1 step by step, and the loop that trains any network."""
