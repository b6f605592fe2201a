"""A Python model that adds up the numbers of each sequence."""

from __future__ import annotations

from tests.serving.backends.python.serving_models import source_of

CONTROLS = """
control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }
control_input { name: "END" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [0, 1] } }
control_input {
  name: "READY" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [false, true] }
}
control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
"""
ACCUMULATE = source_of(
    """
def at(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1)[0]
answers = []
for request in requests:
    shape = value_in(request).shape
    total = 0
    if at(request, "READY"):
        key = at(request, "ID")
        total = at(request, "IN") + (0 if at(request, "START") else SUMS[key])
        SUMS[key] = total
        if at(request, "END"):
            del SUMS[key]
    answers.append(array_ok(np.full(shape, total, np.float32)))
return answers
""",
    "SUMS = {}",
)
"""A running sum for each sequence, in the process of the instance."""
DIRECT = "direct { }"
OLDEST = "oldest { max_candidate_sequences: 3 }"


def accumulate(
    strategy: str = DIRECT,
    *,
    size: int = 4,
    instances: int = 1,
    idle_s: float = 60,
    id_type: str = "TYPE_STRING",
) -> tuple[str, str]:
    """Source of the model and what its config says in addition to one FP32 input and output."""
    controls = CONTROLS.replace("TYPE_STRING", id_type)
    config = (
        f"max_batch_size: {size} instance_group {{ kind: KIND_CPU count: {instances} }} "
        f"sequence_batching {{ {strategy} {controls} "
        f"max_sequence_idle_microseconds: {int(idle_s * 1e6)} }}"
    )
    return ACCUMULATE, config
