"""Files, the model store, optional dependencies, and private names of scikit-learn."""
