"""Arrays: the kinds of numpy array that the code passes around."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]
"""Embedded texts, one per row."""
Columns = NDArray[np.int64]
"""Rows of questions, or for each question the column of a checkpoint."""
Flags = NDArray[np.bool_]
