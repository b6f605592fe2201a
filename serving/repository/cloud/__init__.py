"""Model repositories in S3, Google Cloud Storage and Azure Blob Storage, behind a local cache."""

from __future__ import annotations
