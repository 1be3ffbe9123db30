"""Names for the array types that pass between the method's modules."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]
Flags = NDArray[np.bool_]
