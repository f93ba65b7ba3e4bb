"""Tables of files: CSV and its kin, Parquet, and folders of either, read whole or in batches, and written."""

from density_regression.tabular.files.errors import TableError
from density_regression.tabular.files.table import Batch, TableFile, open_table
from density_regression.tabular.files.writer import TableWriter

__all__ = ["Batch", "TableError", "TableFile", "TableWriter", "open_table"]
