"""The paper in torch: encoders, densities, heads and the model."""
