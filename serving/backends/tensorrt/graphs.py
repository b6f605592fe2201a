"""CUDA graphs: which shapes are captured when an instance starts, and which graph serves a batch.

A graph is made for exact shapes; one with a lower bound also serves smaller batches, whose missing
rows and columns are zeros. Pure; instances enter. Source: spec CFG-082, TRT-04.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.backends.tensorrt.profiles import Profile, ShapeRange
from serving.config.decode import ModelSpec
from serving.config.protobuf import pb
from serving.errors import InvalidArgumentError

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """What to capture, with the batch axis where there is one."""

    shapes: Shapes
    lower: Shapes
    """The smallest shapes that it serves; `shapes` itself where the config gives no bound."""

    def serves(self, shapes: Shapes) -> bool:
        return shapes.keys() == self.shapes.keys() and all(
            len(shape) == len(self.shapes[name])
            and all(
                low <= dim <= high
                for low, dim, high in zip(self.lower[name], shape, self.shapes[name], strict=True)
            )
            for name, shape in shapes.items()
        )

    @property
    def size(self) -> int:
        """How much is computed: the fewer elements, the better a graph fits."""
        total = 0
        for shape in self.shapes.values():
            count = 1
            for dim in shape:
                count *= dim
            total += count
        return total


def specs_of(spec: ModelSpec, config: pb.ModelConfig, profile: Profile) -> list[GraphSpec]:
    """What to capture for one profile; nothing where graphs are off or nothing fits.

    Without graph_spec: one row, the preferred batch sizes and the largest batch, where all other
    dimensions are fixed. Raises: InvalidArgumentError for a graph_spec that names wrong inputs.
    """
    cuda = config.optimization.cuda
    if not cuda.graphs:
        return []
    if cuda.graph_spec:
        made = [_asked(spec, item, index) for index, item in enumerate(cuda.graph_spec)]
    else:
        made = _default_specs(spec, profile)
    return [item for item in made if profile.admits(item.shapes, {})]


def _default_specs(spec: ModelSpec, profile: Profile) -> list[GraphSpec]:
    dims = {}
    for name, tensor in spec.backend_inputs.items():
        shape = tensor.dims if tensor.reshape is None else tensor.reshape
        known = _resolved(shape, profile.shapes.get(name), spec.has_batch_axis)
        if known is None:
            return []
        dims[name] = known
    if not spec.has_batch_axis:
        return [GraphSpec(dims, dims)]
    sizes = sorted({1, *spec.dynamic_batching.preferred_batch_sizes, spec.max_batch_size})
    made = []
    for size in sizes:
        shapes = {name: (size, *shape) for name, shape in dims.items()}
        made.append(GraphSpec(shapes, shapes))
    return made


def _resolved(dims: Shape, known: ShapeRange | None, is_batching: bool) -> Shape | None:
    """`dims` without -1, which the profile may fix; None where it does not."""
    resolved = []
    for axis, dim in enumerate(dims, start=int(is_batching)):
        if dim < 0:
            if known is None or axis >= len(known.low) or known.low[axis] != known.high[axis]:
                return None
            dim = known.low[axis]
        resolved.append(dim)
    return tuple(resolved)


def _asked(
    spec: ModelSpec, item: pb.ModelOptimizationPolicy.Cuda.GraphSpec, index: int
) -> GraphSpec:
    where = f"optimization.cuda.graph_spec[{index}]"
    shapes = _shapes(spec, item.batch_size, item.input, where)
    if not item.HasField("graph_lower_bound"):
        return GraphSpec(shapes, shapes)
    bound = item.graph_lower_bound
    lower = _shapes(spec, bound.batch_size, bound.input, f"{where}.graph_lower_bound")
    for name, shape in lower.items():
        if len(shape) != len(shapes[name]) or any(
            low > high for low, high in zip(shape, shapes[name], strict=True)
        ):
            raise InvalidArgumentError(
                f"{where}.graph_lower_bound: '{name}' is {list(shape)}, above the graph's own "
                f"{list(shapes[name])}"
            )
    return GraphSpec(shapes, lower)


def _shapes(spec: ModelSpec, batch_size: int, inputs: Mapping[str, object], where: str) -> Shapes:
    if spec.has_batch_axis and not 1 <= batch_size <= spec.max_batch_size:
        raise InvalidArgumentError(
            f"{where}.batch_size is {batch_size}: it must be 1 to {spec.max_batch_size}, the "
            "model's max_batch_size"
        )
    if not spec.has_batch_axis and batch_size:
        raise InvalidArgumentError(
            f"{where}.batch_size is {batch_size}, but the model does not batch: remove it"
        )
    unknown = sorted(set(inputs) - set(spec.backend_inputs))
    if unknown:
        raise InvalidArgumentError(
            f"{where}: the model has no input '{unknown[0]}', only {', '.join(spec.backend_inputs)}"
        )
    shapes = {}
    for name, tensor in spec.backend_inputs.items():
        given = inputs.get(name)
        dims = tuple(given.dim) if given is not None else None  # type: ignore[attr-defined]
        if dims is None:
            dims = tensor.dims if tensor.reshape is None else tensor.reshape
        if any(dim < 0 for dim in dims):
            raise InvalidArgumentError(
                f"{where} does not say the size of input '{name}', whose dims are "
                f"{list(tensor.dims)}: add it under `input`"
            )
        shapes[name] = (batch_size, *dims) if spec.has_batch_axis else dims
    return shapes


def choose(specs: Sequence[GraphSpec], shapes: Shapes) -> GraphSpec | None:
    """The graph that serves these shapes with the least surplus; None where none does."""
    fitting = [item for item in specs if item.serves(shapes)]
    return min(fitting, key=lambda item: item.size, default=None)
