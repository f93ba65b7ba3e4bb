"""Types of arrays, for modules that must run where torch is not installed."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Index"]

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
