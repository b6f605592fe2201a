"""Configs of small Python models whose fate a real Triton decided: see data/config_outcomes.json.

Each is a model directory with the version 1, a model.py that answers anything, and this config.
"""

from __future__ import annotations

MODEL = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "A") for request in requests]
        shapes = [item.as_numpy().shape for item in given]
        zeros = [pb_utils.Tensor("B", np.zeros(shape, np.float32)) for shape in shapes]
        return [pb_utils.InferenceResponse([item]) for item in zeros]
"""
IO = (
    'input { name: "A" data_type: TYPE_FP32 dims: [4] }\n'
    'output { name: "B" data_type: TYPE_FP32 dims: [4] }\n'
)
P = f'backend: "python"\n{IO}'
B = f"{P}max_batch_size: 4\n"
START = "int32_false_true: [0, 1]"


def tensor(body: str, before: str = "") -> str:
    return (
        f'backend: "python"\n{before}input {{ name: "A" data_type: TYPE_FP32 {body} }}\n'
        'output { name: "B" data_type: TYPE_FP32 dims: [4] }\n'
    )


def sequence(body: str) -> str:
    return f"{B}sequence_batching {{ {body} }}\n"


def control(body: str) -> str:
    return sequence(f'control_input {{ name: "S" control {{ {body} }} }}')


def dynamic(body: str) -> str:
    return f"{B}dynamic_batching {{ {body} }}\n"


def group(body: str) -> str:
    return f"{P}instance_group {{ {body} }}\n"


def warmup(body: str, batch_size: int = 1) -> str:
    return (
        f'{P}model_warmup {{ name: "w" batch_size: {batch_size} '
        f'inputs {{ key: "A" value {{ {body} }} }} }}\n'
    )


def ensemble(steps: str, extra: str = "", io: str = IO) -> str:
    return f'platform: "ensemble"\n{io}ensemble_scheduling {{ {steps} }}\n{extra}'


def step(model: str, inputs: dict[str, str], outputs: dict[str, str], version: int = -1) -> str:
    maps = "".join(f' input_map {{ key: "{k}" value: "{v}" }}' for k, v in inputs.items())
    maps += "".join(f' output_map {{ key: "{k}" value: "{v}" }}' for k, v in outputs.items())
    return f'step {{ model_name: "{model}" model_version: {version}{maps} }}\n'


PLAIN = step("part", {"A": "A"}, {"B": "B"})
ZERO = "data_type: TYPE_FP32 dims: [4] zero_data: true"
NO_B = f'backend: "python"\n{IO.splitlines()[0]}\n'

CASES: dict[str, str] = {
    # parts of the ensembles below
    "part": P,
    "part_batched": B,
    "part_two": f'{P}input {{ name: "C" data_type: TYPE_FP32 dims: [4] }}\n',
    "part_optional": f'{P}input {{ name: "C" data_type: TYPE_FP32 dims: [4] optional: true }}\n',
    "part_decoupled": f"{P}model_transaction_policy {{ decoupled: true }}\n",
    # text
    "text_slashes": f"// remark\n{P}",
    "text_unknown_field": f'{P}default_model_name: "model.py"\n',
    "text_singular_twice": f"{P}max_batch_size: 1\nmax_batch_size: 2\n",
    "text_oneof_twice": f"{B}dynamic_batching {{ }} sequence_batching {{ }}\n",
    "text_enum_lower": 'backend: "python" input { name: "A" data_type: type_fp32 dims: 4 }',
    "text_enum_number": f'{P}input {{ name: "C" data_type: 11 dims: 4 }}\n',
    "text_enum_unknown_number": f'{P}input {{ name: "C" data_type: 99 dims: 4 }}\n',
    "text_bad_escape": f'{P}parameters {{ key: "a\\qb" value {{ string_value: "c" }} }}\n',
    "text_hex": f"{P}max_batch_size: 0x4\n",
    "text_octal": f"{P}max_batch_size: 010\n",
    "text_int_overflow": f"{P}max_batch_size: 4294967296\n",
    "text_float_for_int": f"{P}max_batch_size: 4.0\n",
    "text_bool_words": f"{P}model_transaction_policy {{ decoupled: True }}\n",
    "text_bool_yes": f"{P}model_transaction_policy {{ decoupled: yes }}\n",
    "text_bool_number": f"{P}model_transaction_policy {{ decoupled: 1 }}\n",
    "text_angles": f"{P}instance_group < count: 1 >\n",
    "text_semicolons": f"{P}max_batch_size: 0;\n",
    "text_trailing_comma": f"{P}instance_group [ {{ count: 1 }}, ]\n",
    "text_adjacent_strings": (
        f'{P}parameters {{ key: "a" "b" value {{ string_value: "c" "d" }} }}\n'
    ),
    "text_map_key_twice": (
        f'{P}parameters {{ key: "a" value {{ string_value: "1" }} }}\n'
        'parameters { key: "a" value { string_value: "2" } }\n'
    ),
    "text_placeholder": f"{P}max_batch_size: ${{BATCH}}\n",
    "text_byte_order_mark": f"\ufeff{P}",
    "text_json": '{ "backend": "python" }\n',
    "text_empty_list": f"{P}instance_group [ ]\n",
    "text_extension": f"{P}[some.extension]: 1\n",
    "text_negative_unsigned": f"{dynamic('priority_levels: -1')}",
    "text_unquoted_string": f"backend: python\n{IO}",
    # model
    "model_twice_same_name": f'{P}input {{ name: "A" data_type: TYPE_FP32 dims: [4] }}\n',
    "model_twice_same_output": f'{P}output {{ name: "B" data_type: TYPE_FP32 dims: [4] }}\n',
    "model_input_is_output": f'{P}output {{ name: "A" data_type: TYPE_FP32 dims: [4] }}\n',
    "model_no_input": 'backend: "python"\noutput { name: "B" data_type: TYPE_FP32 dims: [4] }\n',
    "model_platform_python": f'{P}platform: "anything"\n',
    "model_backend_unknown": f'backend: "nonexistent"\n{IO}',
    "model_onnx_with_plan_platform": f'backend: "onnxruntime" platform: "tensorrt_plan"\n{IO}',
    "model_filename_leaves": f'{P}default_model_filename: "../1/model.py"\n',
    "model_filename_missing": f'{P}default_model_filename: "other.py"\n',
    "model_labels_missing": tensor("dims: 4").replace(
        "dims: [4] }", 'dims: [4] label_filename: "none.txt" }'
    ),
    "model_labels_leave": tensor("dims: 4").replace(
        "dims: [4] }", 'dims: [4] label_filename: "../none.txt" }'
    ),
    "model_cache_sequence": f"{sequence('')}response_cache {{ enable: true }}\n",
    "model_agent_unknown": f'{P}model_repository_agents {{ agents {{ name: "nobody" }} }}\n',
    "model_runtime_leaves": f'{P}runtime: "../x.so"\n',
    # versions
    "versions_latest_0": f"{P}version_policy {{ latest {{ num_versions: 0 }} }}\n",
    "versions_specific_none": f"{P}version_policy {{ specific {{ }} }}\n",
    "versions_specific_missing": f"{P}version_policy {{ specific {{ versions: [7] }} }}\n",
    "versions_specific_some": f"{P}version_policy {{ specific {{ versions: [1, 7] }} }}\n",
    "versions_specific_negative": f"{P}version_policy {{ specific {{ versions: [1, -7] }} }}\n",
    # tensors
    "tensor_dim_negative": tensor("dims: [-2]"),
    "tensor_no_dims": tensor(""),
    "tensor_reshape_zero": tensor("dims: 4 reshape { shape: 0 }"),
    "tensor_reshape_empty": tensor("dims: 1 reshape { }"),
    "tensor_reshape_empty_batched": tensor("dims: 1 reshape { }", "max_batch_size: 4\n"),
    "tensor_reshape_empty_two": tensor("dims: 2 reshape { }", "max_batch_size: 4\n"),
    "tensor_reshape_wild": tensor("dims: [-1, 4] reshape { shape: 4 }"),
    "tensor_reshape_moved": tensor("dims: [2, -1, 3] reshape { shape: [3, -1, 2] }"),
    "tensor_reshape_order": tensor("dims: [2, 3, -1] reshape { shape: [6, -1] }"),
    "tensor_format_2": tensor("dims: [4, 4] format: FORMAT_NCHW"),
    "tensor_format_3": tensor("dims: [4, 4, 3] format: FORMAT_NHWC"),
    "tensor_shape_tensor": tensor("dims: 4 is_shape_tensor: true"),
    "tensor_non_linear": tensor("dims: [1, 2, 3] is_non_linear_format_io: true"),
    "tensor_huge": tensor("dims: [9223372036854775807, 2]"),
    "tensor_ragged_no_batch": tensor("dims: [-1] allow_ragged_batch: true"),
    "batch_input_no_source": f'{B}batch_input {{ target_name: "x" data_type: TYPE_INT32 }}\n',
    "batch_input_type": f'{B}batch_input {{ source_input: "A" data_type: TYPE_INT64 }}\n',
    "batch_input_unknown": f'{B}batch_input {{ source_input: "q" data_type: TYPE_INT32 }}\n',
    "batch_output_unknown": f'{B}batch_output {{ source_input: "A" target_name: "q" }}\n',
    "batch_output_twice": f'{B}batch_output {{ source_input: "A" target_name: ["B", "B"] }}\n',
    # dynamic batching
    "dynamic_preferred_large": dynamic("preferred_batch_size: [8]"),
    "dynamic_preferred_no_batch": f"{P}dynamic_batching {{ preferred_batch_size: [1] }}\n",
    "dynamic_no_batch": f"{P}dynamic_batching {{ }}\n",
    "dynamic_ordering_levels": dynamic(
        "preserve_ordering: true priority_levels: 2 default_priority_level: 1"
    ),
    "dynamic_ordering_delay": dynamic(
        "preserve_ordering: true default_queue_policy { timeout_action: DELAY "
        "default_timeout_microseconds: 5 }"
    ),
    "dynamic_ordering_delay_0": dynamic(
        "preserve_ordering: true default_queue_policy { timeout_action: DELAY }"
    ),
    "dynamic_policy_no_levels": dynamic("priority_queue_policy { key: 1 value { } }"),
    "dynamic_default_no_levels": dynamic("default_priority_level: 3"),
    "dynamic_policy_0": dynamic(
        "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 0 value { } }"
    ),
    # sequences
    "sequence_no_name": sequence(f"control_input {{ control {{ {START} }} }}"),
    "sequence_two_lists": control(f"{START} fp32_false_true: [0, 1]"),
    "sequence_one_entry": control("int32_false_true: [0]"),
    "sequence_id_list": control(f"kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT32 {START}"),
    "sequence_id_fp32": control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32"),
    "sequence_id_no_type": control("kind: CONTROL_SEQUENCE_CORRID"),
    "sequence_same_name": sequence(
        f'control_input {{ name: "S" control {{ {START} }} }} '
        f'control_input {{ name: "S" control {{ kind: CONTROL_SEQUENCE_END {START} }} }}'
    ),
    "sequence_oldest_large": sequence("oldest { preferred_batch_size: [9] }"),
    "sequence_oldest_zero": sequence("oldest { preferred_batch_size: [0] }"),
    "sequence_slots": sequence("direct { minimum_slot_utilization: 1.5 }"),
    "sequence_slots_negative": sequence("direct { minimum_slot_utilization: -0.5 }"),
    "sequence_state_twice": sequence(
        'state { input_name: "s" output_name: "t" data_type: TYPE_FP32 dims: [1] } '
        'state { input_name: "s" output_name: "u" data_type: TYPE_FP32 dims: [1] }'
    ),
    "sequence_state_wild": sequence(
        'state { input_name: "s" output_name: "t" data_type: TYPE_FP32 dims: [-1] '
        'initial_state { name: "i" data_type: TYPE_FP32 dims: [-1] zero_data: true } }'
    ),
    "sequence_state_dims": sequence(
        'state { input_name: "s" output_name: "t" data_type: TYPE_FP32 dims: [2] '
        'initial_state { name: "i" data_type: TYPE_FP32 dims: [3] zero_data: true } }'
    ),
    "sequence_state_no_data": sequence(
        'state { input_name: "s" output_name: "t" data_type: TYPE_FP32 dims: [2] '
        'initial_state { name: "i" data_type: TYPE_FP32 dims: [2] } }'
    ),
    "sequence_state_file": sequence(
        'state { input_name: "s" output_name: "t" data_type: TYPE_FP32 dims: [2] '
        'initial_state { name: "i" data_type: TYPE_FP32 dims: [2] data_file: "none" } }'
    ),
    "sequence_strategy": (
        f'{sequence("")}parameters {{ key: "TRITON_BATCH_STRATEGY_PATH" '
        'value { string_value: "x.so" } }\n'
    ),
    # instances
    "group_gpu": group("kind: KIND_GPU"),
    "group_gpu_0": group("kind: KIND_GPU gpus: [0]"),
    "group_auto_gpu_0": group("kind: KIND_AUTO gpus: [0]"),
    "group_model_gpus": group("kind: KIND_MODEL gpus: [0]"),
    "group_profile": group('kind: KIND_CPU profile: "1"'),
    "group_count_0": group("kind: KIND_CPU count: 0"),
    "group_two_scopes": group(
        'rate_limiter { resources [ { name: "r" count: 1 }, { name: "r" count: 1 global: true } ] }'
    ),
    "group_secondary": group("kind: KIND_CPU secondary_devices { kind: KIND_NVDLA device_id: 0 }"),
    "group_host_policy": group('kind: KIND_CPU host_policy: "nobody"'),
    # warm-up
    "warmup_good": warmup(ZERO),
    "warmup_wild": warmup("data_type: TYPE_FP32 dims: [-1] zero_data: true"),
    "warmup_no_data": warmup("data_type: TYPE_FP32 dims: [4]"),
    "warmup_no_type": warmup("dims: [4] zero_data: true"),
    "warmup_file": warmup('data_type: TYPE_FP32 dims: [4] input_data_file: "none"'),
    "warmup_batch": warmup(ZERO, 3),
    "warmup_unknown_input": (
        f'{P}model_warmup {{ name: "w" batch_size: 1 inputs {{ key: "A" value {{ {ZERO} }} }} '
        f'inputs {{ key: "Z" value {{ {ZERO} }} }} }}\n'
    ),
    "warmup_skipped": (
        f'{P}model_warmup {{ name: "w" inputs {{ value {{ dims: [4] zero_data: true }} }} }}\n'
    ),
    "warmup_missing_input": f'{P}model_warmup {{ name: "w" batch_size: 1 }}\n',
    # ensembles
    "ensemble_good": ensemble(PLAIN),
    "ensemble_backend": ensemble(PLAIN, 'backend: "python"\n'),
    "ensemble_group": ensemble(PLAIN, "instance_group { }\n"),
    "ensemble_optimization": ensemble(PLAIN, "optimization { }\n"),
    "ensemble_warmup": ensemble(PLAIN, 'model_warmup { name: "w" }\n'),
    "ensemble_no_step": ensemble(""),
    "ensemble_no_input_map": ensemble(step("part", {}, {"B": "B"})),
    "ensemble_no_output_map": ensemble(step("part", {"A": "A"}, {})),
    "ensemble_no_model_name": ensemble(step("", {"A": "A"}, {"B": "B"})),
    "ensemble_written_twice": ensemble(PLAIN + PLAIN),
    "ensemble_input_twice": ensemble(
        step("part", {"A": "A"}, {"B": "B"}).replace(
            "output_map", 'input_map { key: "A" value: "Q" } output_map'
        )
    ),
    "ensemble_input_unused": ensemble(
        PLAIN, 'input { name: "Q" data_type: TYPE_FP32 dims: [4] }\n'
    ),
    "ensemble_output_unwritten": ensemble(
        PLAIN, 'output { name: "Q" data_type: TYPE_FP32 dims: [4] }\n'
    ),
    "ensemble_tensor_lost": ensemble(
        step("part", {"A": "A"}, {"B": "B"}) + step("part", {"A": "A"}, {"B": "lost"})
    ),
    "ensemble_tensor_unwritten": ensemble(step("part_two", {"A": "A", "C": "none"}, {"B": "B"})),
    "ensemble_part_missing": ensemble(step("nobody", {"A": "A"}, {"B": "B"})),
    "ensemble_part_version": ensemble(step("part", {"A": "A"}, {"B": "B"}, 9)),
    "ensemble_part_bad": ensemble(step("tensor_no_dims", {"A": "A"}, {"B": "B"})),
    "ensemble_itself": ensemble(step("ensemble_itself", {"A": "A"}, {"B": "B"})),
    "ensemble_round_a": ensemble(step("ensemble_round_b", {"A": "A"}, {"B": "B"})),
    "ensemble_round_b": ensemble(step("ensemble_round_a", {"A": "A"}, {"B": "B"})),
    "ensemble_batch_size": ensemble(
        step("part_batched", {"A": "A"}, {"B": "B"}), "max_batch_size: 8\n"
    ),
    "ensemble_wrong_input": ensemble(step("part", {"A": "A", "Q": "A"}, {"B": "B"})),
    "ensemble_wrong_output": ensemble(step("part", {"A": "A"}, {"Q": "B"})),
    "ensemble_input_unmapped": ensemble(step("part_two", {"A": "A"}, {"B": "B"})),
    "ensemble_optional_unmapped": ensemble(step("part_optional", {"A": "A"}, {"B": "B"})),
    "ensemble_type": ensemble(PLAIN, io=IO.replace("TYPE_FP32", "TYPE_INT32", 1)),
    "ensemble_shape": ensemble(PLAIN, io=IO.replace("[4]", "[5]", 1)),
    "ensemble_shape_wild": ensemble(PLAIN, io=IO.replace("[4]", "[-1]", 1)),
    "ensemble_rank": ensemble(PLAIN, io=IO.replace("[4]", "[4, 1]", 1)),
    "ensemble_two_decoupled": ensemble(
        step("part_decoupled", {"A": "A"}, {"B": "t"})
        + step("part_two", {"A": "A", "C": "t"}, {"B": "B"})
    ),
    "ensemble_decoupled": ensemble(step("part_decoupled", {"A": "A"}, {"B": "B"})),
    "ensemble_no_platform": f"{P}ensemble_scheduling {{ {PLAIN} }}\n",
}
