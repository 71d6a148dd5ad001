"""The store: tasks, idempotency keys and measurements in SQLite, durable.

`store` has the class that the loop writes through; `opening` decides whether a database
may be used at all; `hetd.maintenance` checks, saves and restores one.
"""

from hetd.store.batch import Batch
from hetd.store.errors import StoreError, StoreFullError
from hetd.store.retention import Removed, Retention
from hetd.store.store import Store

__all__ = ["Batch", "Removed", "Retention", "Store", "StoreError", "StoreFullError"]
