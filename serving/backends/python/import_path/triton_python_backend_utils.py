"""Stands for `serving.backends.python.pb_utils` in processes that a model has started itself.

In the instance process the module is registered under this name already; a process of
`multiprocessing` gets `sys.path` from it and imports this file.
"""

from __future__ import annotations

import sys

from serving.backends.python import pb_utils

sys.modules[__name__] = pb_utils
