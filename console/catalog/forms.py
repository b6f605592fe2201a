"""Forms of the models pages: version policy, load, config text."""

from __future__ import annotations

from typing import Any

from django import forms

POLICY_KINDS = [
    ("latest", "The latest versions"),
    ("all", "All versions"),
    ("specific", "Only these versions"),
]
MAX_VERSION = 2**63 - 1
# Below what Django takes of a form (DATA_UPLOAD_MAX_MEMORY_SIZE), so that the answer is a sentence.
MAX_TEXT = 2 << 20


class PolicyForm(forms.Form):
    """Which versions are served; `policy` is the form that `set_version_policy` takes."""

    kind = forms.ChoiceField(choices=POLICY_KINDS, widget=forms.RadioSelect, label="Serve")
    latest_count = forms.IntegerField(
        min_value=1,
        max_value=1000,
        required=False,
        label="How many of the latest",
        help_text="The highest version numbers count as the latest.",
    )
    versions = forms.CharField(
        required=False,
        label="Versions",
        help_text="Numbers with commas between them: 1, 3.",
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
    )

    def clean_versions(self) -> list[int]:
        words = self.cleaned_data["versions"].replace(",", " ").split()
        wrong = [word for word in words if not word.isdecimal() or not 0 < int(word) <= MAX_VERSION]
        if wrong:
            raise forms.ValidationError(
                f"'{wrong[0]}' is not a version: versions are whole numbers from 1."
            )
        return sorted({int(word) for word in words})

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        kind = values.get("kind")
        if (
            kind == "latest"
            and not values.get("latest_count")
            and "latest_count" not in self.errors
        ):
            self.add_error("latest_count", "Say how many of the latest versions: 1 or more.")
        if kind == "specific" and not values.get("versions") and "versions" not in self.errors:
            self.add_error("versions", "Name at least one version.")
        return values

    @property
    def policy(self) -> dict[str, Any]:
        values = self.cleaned_data
        if values["kind"] == "latest":
            return {"latest": {"num_versions": values["latest_count"]}}
        if values["kind"] == "specific":
            return {"specific": {"versions": values["versions"]}}
        return {"all": {}}


class ConfigForm(forms.Form):
    """The text of config.pbtxt as it came from the editor."""

    text = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_TEXT,
        widget=forms.Textarea,
        error_messages={"max_length": "It is longer than 2 MiB; upload such a config as a file."},
    )
    expected_sha256 = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def clean_text(self) -> str:
        # Browsers send CRLF for every line break of a textarea.
        text: str = self.cleaned_data["text"]
        return text.replace("\r\n", "\n")

    @property
    def problem(self) -> str:
        """What is wrong with what came, in a sentence."""
        return " ".join(str(text) for texts in self.errors.values() for text in texts)
