"""The paper's experiments, to be run again by anyone."""

__all__: list[str] = []
