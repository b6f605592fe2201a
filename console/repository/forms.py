"""Forms of the upload pages; names and versions are checked by the same rules as in the API."""

from __future__ import annotations

from typing import Any

from django import forms

from console.repository.arrange import NEXT_VERSION
from console.repository.models import Upload
from console.repository.names import NameRefusedError, check_model_name, check_version


class WishForm(forms.Form):
    """What the model and its version should be called."""

    model = forms.CharField(
        label="Model name",
        required=False,
        max_length=128,
        help_text="Empty: the name of the folder, of the config, or of the file.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    version = forms.CharField(
        label="Version",
        required=False,
        max_length=24,
        help_text="Empty: as in the files. <code>next</code>: the next free number. Or a number.",
        widget=forms.TextInput(
            attrs={
                "autocomplete": "off",
                "list": "version-choices",
                "placeholder": "as in the files",
            }
        ),
    )

    @classmethod
    def about(cls, upload: Upload) -> WishForm:
        """The form of an upload; what the files say stands where nothing was typed."""
        form = cls(initial={"model": upload.wished_model, "version": upload.wished_version})
        if upload.model:
            form.fields["model"].widget.attrs["placeholder"] = upload.model
        if upload.versions:
            listed = ", ".join(str(version) for version in upload.versions)
            form.fields["version"].widget.attrs["placeholder"] = listed
        return form

    def clean_model(self) -> str:
        name: str = self.cleaned_data["model"]
        try:
            return check_model_name(name) if name.strip() else ""
        except NameRefusedError as error:
            raise forms.ValidationError(str(error)) from error

    def clean_version(self) -> str:
        version: str = self.cleaned_data["version"].strip().lower()
        try:
            if version not in ("", NEXT_VERSION):
                check_version(version)
        except NameRefusedError as error:
            raise forms.ValidationError(str(error)) from error
        return version


class UploadForm(WishForm):
    """Where the page's script does not run, the files come with the form itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].widget.attrs["placeholder"] = "from the files"
