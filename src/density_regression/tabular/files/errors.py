"""The error of a file that cannot be read as a table."""

__all__ = ["TableError"]


class TableError(ValueError):
    """A file is no table, or one of its values is not what its column holds; the message says where, and a remedy."""
