"""Static files by content hash, imports between our ES modules rewritten too."""

from __future__ import annotations

from typing import Any

from django.contrib.staticfiles.storage import ManifestStaticFilesStorage

OUR_MODULES = "js/*.js"


class ModuleManifestStorage(ManifestStaticFilesStorage):
    support_js_module_import_aggregation = True
    _patterns: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Packages ship files whose imports point outside of what they ship; only our own modules
        # import each other by path.
        self._patterns = {
            OUR_MODULES if pattern == "*.js" else pattern: rules
            for pattern, rules in self._patterns.items()
        }
