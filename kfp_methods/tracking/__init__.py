"""A finished or failing run becomes an MLflow run, written beside the method and never in its way.

Importing this package is quick: MLflow itself is imported by the tracker's thread.
"""

from __future__ import annotations

from kfp_methods.tracking.outcome import DatasetUsed, Outcome, Tracked
from kfp_methods.tracking.settings import local_tracking_uri
from kfp_methods.tracking.tracker import Tracker

__all__ = ["DatasetUsed", "Outcome", "Tracked", "Tracker", "local_tracking_uri"]
