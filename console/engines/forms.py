"""The form of an engine build; its profiles are a table of shapes, a row for each input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.forms import BoundField

from console.engines.choices import Library, Precision
from console.engines.selectors import tensorrt_install
from console.engines.services import Wish, default_target
from console.engines.shapes import ProfileInput, ShapeError, parse_shape
from serving.config.shape_ranges import range_problem
from workers.messages import WorkerInfo

PROFILES = 3
_PLACES = ("low", "best", "high")
_LABELS = {"low": "smallest", "best": "best", "high": "largest"}
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ProfileRow:
    item: ProfileInput
    fields: list[BoundField]
    error: str


class EngineForm(forms.Form):
    """`wish` is what `build_engine` takes."""

    version = forms.TypedChoiceField(coerce=int, label="ONNX file of version")
    target = forms.CharField(
        max_length=128,
        label="Model to build",
        help_text="A new model, or one of TensorRT, which gets a new version.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    worker_id = forms.ChoiceField(label="Worker")
    library = forms.ChoiceField(choices=Library.choices, required=False, label="Builder")
    precision = forms.ChoiceField(
        choices=Precision.choices,
        label="Precision",
        help_text="TensorRT-RTX builds every layer as the file says and refuses the other choices.",
    )
    capabilities = forms.CharField(
        required=False,
        max_length=100,
        label="Compute capabilities",
        help_text=(
            "Empty: the GPU of the worker. TensorRT-RTX also builds without a GPU for those named "
            "here, as in 8.6, 8.9."
        ),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    workspace_mib = forms.IntegerField(
        min_value=1,
        max_value=1 << 20,
        required=False,
        label="Workspace limit, MiB",
        help_text="Memory that layers may use; empty: no limit.",
    )
    is_version_compatible = forms.BooleanField(
        required=False,
        label="Later versions of the runtime may load it",
        help_text="Version compatible: TensorRT only.",
    )

    def __init__(
        self,
        *args: Any,
        model: str,
        versions: Sequence[int],
        inputs: Sequence[ProfileInput],
        workers: Sequence[WorkerInfo],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._model = model
        self._inputs = inputs
        # Of our own fields only: what is set on the class would be shared by all forms.
        choices: dict[str, Any] = {
            "version": [(number, str(number)) for number in versions],
            "worker_id": [(item.worker_id, _worker_label(item)) for item in workers],
        }
        for name, rows in choices.items():
            field = self.fields[name]
            assert isinstance(field, forms.ChoiceField)
            field.choices = rows
        self.fields["target"].initial = default_target(model)
        for number in range(PROFILES):
            for index, item in enumerate(inputs):
                for place in _PLACES:
                    self.fields[f"p{number}_{index}_{place}"] = forms.CharField(
                        required=False,
                        max_length=100,
                        label=f"{item.name}, {_LABELS[place]}, profile {number}",
                        initial=getattr(item, place) if number == 0 else "",
                        widget=forms.TextInput(attrs={"autocomplete": "off", "size": "14"}),
                    )
        self._profile_errors: dict[tuple[int, int], str] = {}

    @property
    def plain_fields(self) -> list[BoundField]:
        names = ("version", "target", "worker_id", "library", "precision", "capabilities")
        return [self[name] for name in names]

    @property
    def tables(self) -> Iterator[tuple[int, bool, list[ProfileRow]]]:
        """(number, is it in use, rows) of every profile."""
        for number in range(PROFILES if self._inputs else 0):
            rows = []
            for index, item in enumerate(self._inputs):
                fields = [self[f"p{number}_{index}_{place}"] for place in _PLACES]
                rows.append(ProfileRow(item, fields, self._profile_errors.get((number, index), "")))
            is_used = number == 0 or any(field.value() for row in rows for field in row.fields)
            yield number, is_used, rows

    def clean_capabilities(self) -> list[str]:
        text: str = self.cleaned_data["capabilities"]
        return text.replace(",", " ").split()

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        profiles = []
        for number in range(PROFILES):
            profile = self._profile(number, values)
            if profile:
                profiles.append(profile)
        values["profiles"] = profiles
        return values

    def _profile(self, number: int, values: dict[str, Any]) -> dict[str, list[list[int]]]:
        found = {}
        given = [values.get(f"p{number}_{i}_low", "") for i in range(len(self._inputs))]
        for index, item in enumerate(self._inputs):
            texts = [str(values.get(f"p{number}_{index}_{place}", "")) for place in _PLACES]
            if not any(texts) and (item.is_optional or (number and not any(given))):
                continue
            try:
                low, best, high = (parse_shape(text) for text in texts)
                problem = "" if all(texts) or not item.shape else "Write all three shapes."
                problem = problem or range_problem(low, best, high)
                found[item.name] = [low, best, high]
            except ShapeError as error:
                problem = str(error)
            if problem:
                self._profile_errors[number, index] = problem
                self.add_error(
                    f"p{number}_{index}_low", f"{problem[0].upper()}{problem[1:].rstrip('.')}."
                )
        return found

    @property
    def wish(self) -> Wish:
        values = self.cleaned_data
        return Wish(
            model=self._model,
            version=values["version"],
            target=values["target"],
            worker_id=values["worker_id"],
            library=values["library"],
            precision=values["precision"],
            profiles=values["profiles"],
            workspace_bytes=(values["workspace_mib"] or 0) * _MIB,
            capabilities=values["capabilities"],
            is_version_compatible=values["is_version_compatible"],
        )


def _worker_label(worker: WorkerInfo) -> str:
    devices = ", ".join(dict.fromkeys(device.name for device in worker.devices))
    lacks = ", no TensorRT" if tensorrt_install(worker) else ""
    return f"{worker.worker_id} ({devices or 'no GPU'}{lacks})"
