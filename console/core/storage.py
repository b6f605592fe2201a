"""Static files by content hash, imports between our ES modules rewritten too."""

from __future__ import annotations

from django.contrib.staticfiles.storage import ManifestStaticFilesStorage


class ModuleManifestStorage(ManifestStaticFilesStorage):
    support_js_module_import_aggregation = True
    # A reference in a third-party file that points nowhere must not stop the installation.
    manifest_strict = True
