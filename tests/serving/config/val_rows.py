"""For each load-time rule, a config that breaks exactly it."""

from __future__ import annotations

from tests.serving.config.val_rows_ensemble import ENSEMBLE_ROWS
from tests.serving.config.val_rows_model import MODEL_ROWS
from tests.serving.config.val_rows_sequence import SEQUENCE_ROWS
from tests.serving.config.val_rows_tensors import INSTANCE_ROWS, TENSOR_ROWS
from tests.serving.config.val_texts import BASE, Row, at_mark

ROWS = [*MODEL_ROWS, *SEQUENCE_ROWS, *ENSEMBLE_ROWS, *TENSOR_ROWS, *INSTANCE_ROWS]

__all__ = ["BASE", "ROWS", "Row", "at_mark"]
