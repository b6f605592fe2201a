"""The model repository on disk: browse, upload, edit."""
