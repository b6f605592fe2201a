"""The FIL backend: forests of XGBoost, LightGBM and scikit-learn, run by Treelite on the CPU.

One model for a version, read once and shared by its instances: it is never written to, and predict
runs without the GIL. Load threads enter the backend and the model; an instance belongs to its
thread. Names, parameters and shapes after Triton's FIL backend. Source: spec FIL-01..03.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.backends.attributes import BackendAttributes
from serving.backends.base import (
    Backend,
    LoadedModel,
    ModelContext,
    ModelInstance,
    Placement,
    TensorInstance,
)
from serving.backends.fil_files import read_model, signature_of, treelite
from serving.backends.fil_shap import NoCoverError, TreeShap
from serving.backends.fil_trial import try_in_child
from serving.backends.model_place import default_max_batch_size, model_path, refuse_decoupled
from serving.config.compare import fill_from_signature
from serving.config.decode import InstanceKind, ModelSpec
from serving.config.signature_trees import FILENAMES, TreeSignature
from serving.config.tree_outputs import (
    INPUT,
    OUTPUT,
    SHAP_OUTPUT,
    WITHOUT_EFFECT,
    TreeParameters,
    gives_label,
    gives_probabilities,
    other_type,
    output_width,
    read_tree_parameters,
    shap_problem,
    tensors_of,
)
from serving.errors import (
    ErrorCode,
    FailureReason,
    InvalidArgumentError,
    UnavailableError,
    UnsupportedError,
    error_from_code,
)

Array = NDArray[np.generic]
logger = logging.getLogger(__name__)

_FLOATS = ("FP32", "FP64")
_ROWS_PER_THREAD = 512
"""Fewer rows are done sooner than a second thread is woken."""


class FilBackend(Backend):
    name = "fil"
    attributes = BackendAttributes(parallel_instance_loading=True)

    def auto_complete(self, context: ModelContext) -> None:
        if context.config.input and context.config.output:
            return
        parameters = read_tree_parameters(context.spec.parameters)
        trees = signature_of(_read(context, parameters))
        rows = default_max_batch_size(context.backend_config)
        tensors = tensors_of(trees, parameters)
        fill_from_signature(context.config, tensors, default_max_batch_size=rows)

    def load(self, context: ModelContext) -> LoadedModel:
        refuse_decoupled(context)
        spec = context.spec
        parameters = read_tree_parameters(spec.parameters)
        for name in WITHOUT_EFFECT.keys() & spec.parameters.keys():
            logger.info(
                "parameter without effect model=%s parameter=%s: %s",
                spec.name,
                name,
                WITHOUT_EFFECT[name],
            )
        if any(group.kind is InstanceKind.GPU for group in spec.instance_groups):
            raise UnsupportedError(
                f"model '{spec.name}' asks for KIND_GPU, and the fil backend runs trees on the "
                "CPU: write KIND_CPU or KIND_AUTO in instance_group"
            )
        model = _read(context, parameters)
        _check(spec, signature_of(model), parameters)
        return _Trees(context, model, parameters, _shap(spec, model))


class _Trees(LoadedModel):
    def __init__(
        self, context: ModelContext, model: Any, parameters: TreeParameters, shap: TreeShap | None
    ) -> None:
        self._context = context
        self._model = model
        self._parameters = parameters
        self._shap = shap

    def create_instance(self, placement: Placement) -> ModelInstance:
        cores = len(placement.cpu_cores or os.sched_getaffinity(0))
        return _TreeInstance(
            self._context, self._model, self._parameters, cores=cores, shap=self._shap
        )

    def unload(self) -> None:
        self._model = self._shap = None


class _TreeInstance(TensorInstance):
    def __init__(
        self,
        context: ModelContext,
        model: Any,
        parameters: TreeParameters,
        *,
        cores: int,
        shap: TreeShap | None,
    ) -> None:
        super().__init__(context)
        self._model = model
        self._predict = treelite().gtil.predict
        self._trees = trees = signature_of(model)
        self._thread_count = parameters.thread_count
        self._cores = cores
        self._dtype = context.spec.outputs[OUTPUT].datatype.dtype
        self._form = _form(trees, parameters)
        self._shap = shap

    def run(self, inputs: dict[str, Array], output_names: Sequence[str]) -> dict[str, Array]:
        given = inputs[INPUT]
        rows = given if given.ndim == 2 else given.reshape(1, -1)
        if rows.shape[1] != self._trees.features:
            # Treelite would read past the row, or take what is not there as missing.
            text = (
                f"input '{INPUT}' of model '{self._spec.name}' has {rows.shape[1]} features in a "
                f"row, the model was trained on {self._trees.features}"
            )
            raise error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND)
        if not len(rows):
            text = f"input '{INPUT}' of model '{self._spec.name}' has no rows: send one at least"
            raise error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND)
        rows = np.require(rows, requirements=("C", "A"))
        outputs = {}
        if OUTPUT in output_names:
            outputs[OUTPUT] = self._predicted(rows, is_one=given.ndim == 1)
        if SHAP_OUTPUT in output_names and self._shap is not None:
            values = self._shap(rows).astype(self._outputs[SHAP_OUTPUT].datatype.dtype, copy=False)
            values = values[:, 0] if self._shap.score_count == 1 else values
            outputs[SHAP_OUTPUT] = values[0] if given.ndim == 1 else values
        return outputs

    def _predicted(self, rows: Array, *, is_one: bool) -> Array:
        scores = self._predict(self._model, rows, nthread=self._threads(len(rows)))
        values = self._form(scores).astype(self._dtype, copy=False)
        # FIL drops dimensions of one element: a score or a label for each row is a flat tensor.
        if values.shape[1] == 1:
            return values[:, 0]
        return values[0] if is_one else values

    def _threads(self, rows: int) -> int:
        if self._thread_count is not None:
            return self._thread_count or self._cores
        return max(1, min(self._cores, rows // _ROWS_PER_THREAD))


def _read(context: ModelContext, parameters: TreeParameters) -> Any:
    path = _path(context, parameters)
    if context.child is None:  # in a process of the instance's own it crashes nobody else
        try_in_child(path, parameters)
    return read_model(
        path, parameters.model_type, allows_unknown_fields=parameters.allows_unknown_fields
    )


def _path(context: ModelContext, parameters: TreeParameters) -> Path:
    other = other_type(context.version_directory, parameters)
    if other and not context.config.default_model_filename:
        raise UnavailableError(
            f"unable to find '{context.version}/{parameters.filename}' for model "
            f"'{context.config.name}': {FILENAMES[other]} is there, set the parameter model_type "
            f"to {other}"
        )
    return model_path(context, parameters.filename)


def _check(spec: ModelSpec, trees: TreeSignature, parameters: TreeParameters) -> None:
    """Raises: InvalidArgumentError or UnsupportedError where config and model disagree."""
    _check_names(spec)
    given, told = spec.inputs[INPUT], spec.outputs[OUTPUT]
    for tensor in (given, *spec.outputs.values()):
        if tensor.datatype.name not in _FLOATS:
            raise InvalidArgumentError(
                f"'{tensor.name}' of model '{spec.name}' is {tensor.datatype.config_name} in the "
                "config: trees take and give TYPE_FP32 or TYPE_FP64"
            )
    dims = given.dims if given.reshape is None else given.reshape
    rank = 1 if spec.has_batch_axis else 2
    if dims[-1:] not in ((-1,), (trees.features,)) or len(dims) > rank:
        raise InvalidArgumentError(
            f"input '{INPUT}' of model '{spec.name}' has dims {list(dims)} in the config, and the "
            f"model was trained on {trees.features} features: write dims: [{trees.features}]"
        )
    width = output_width(trees, parameters)
    dims = told.dims if told.reshape is None else told.reshape
    if any(dim not in (1, -1, width) for dim in dims) or (width > 1 and dims[-1:] == (1,)):
        raise InvalidArgumentError(
            f"output '{OUTPUT}' of model '{spec.name}' has dims {list(dims)} in the config, and "
            f"the model gives {_said(trees, parameters)}: write dims: [{width}]"
        )


def _check_names(spec: ModelSpec) -> None:
    if set(spec.inputs) != {INPUT} or set(spec.outputs) - {SHAP_OUTPUT} != {OUTPUT}:
        raise InvalidArgumentError(
            f"model '{spec.name}' has inputs {sorted(spec.inputs)} and outputs "
            f"{sorted(spec.outputs)}: models of the fil backend have one input '{INPUT}' and one "
            f"output '{OUTPUT}', besides '{SHAP_OUTPUT}' where that is wanted"
        )


def _shap(spec: ModelSpec, model: Any) -> TreeShap | None:
    """Raises: InvalidArgumentError where the config asks for what the model does not tell."""
    told = spec.outputs.get(SHAP_OUTPUT)
    if told is None:
        return None
    dims = list(told.dims if told.reshape is None else told.reshape)
    is_table = not spec.has_batch_axis and len(spec.inputs[INPUT].dims) > 1
    problem = shap_problem(dims[1:] if is_table else dims, signature_of(model))
    if problem:
        raise InvalidArgumentError(
            f"output '{SHAP_OUTPUT}' of model '{spec.name}' has dims {dims} in the config, and "
            f"tells what each feature adds, and what none adds: {problem}"
            + (" after the rows" if is_table else "")
        )
    try:
        return TreeShap(model)
    except NoCoverError as error:
        raise InvalidArgumentError(
            f"model '{spec.name}' has an output '{SHAP_OUTPUT}', and the model cannot tell it: "
            f"{error}; remove the output, or save the model anew with the library that trained it"
        ) from error


def _said(trees: TreeSignature, parameters: TreeParameters) -> str:
    if gives_probabilities(trees, parameters):
        return f"the probabilities of {max(2, trees.classes)} classes"
    if gives_label(trees, parameters):
        return "the number of a class"
    count = trees.classes * trees.targets
    return "one score" if count == 1 else f"{count} scores"


def _form(trees: TreeSignature, parameters: TreeParameters) -> Callable[[Array], Array]:
    """From Treelite's [rows, targets, classes] to the [rows, width] that the config asks for."""
    if gives_probabilities(trees, parameters):
        return _each_class if trees.classes > 1 else _both_classes
    if not gives_label(trees, parameters):
        return _flat
    if trees.classes > 1:
        return _best_class
    threshold = parameters.threshold
    return lambda scores: scores[:, 0] > threshold  # type: ignore[operator]


def _flat(scores: Array) -> Array:
    return scores.reshape(len(scores), -1)


def _each_class(scores: Array) -> Array:
    return scores[:, 0]


def _both_classes(scores: Array) -> Array:
    second: NDArray[np.floating[Any]] = scores[:, 0]  # type: ignore[assignment]
    return np.concatenate([1 - second, second], axis=1)


def _best_class(scores: Array) -> Array:
    return np.argmax(scores[:, 0], axis=1, keepdims=True)  # type: ignore[no-any-return]
