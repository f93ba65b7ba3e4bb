"""Tables on disk as training data: row groups of Parquet, one pass that samples them, and mini-batches."""

from density_regression.tabular.stream.batches import StreamBatches
from density_regression.tabular.stream.row_groups import RowGroups, is_on_disk
from density_regression.tabular.stream.scan import Sampled, scan

__all__ = ["RowGroups", "Sampled", "StreamBatches", "is_on_disk", "scan"]
