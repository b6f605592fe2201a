"""The keys of `parameters` that each backend reads, for completion in the editor.

Data only; any thread. A test holds every key against the sources of the core.
"""

from __future__ import annotations

from serving.config.backend_files import MODEL_FILES

EVERYWHERE = (
    *("instance_isolation", "initialize_timeout_seconds", "execute_timeout_seconds"),
    *("finalize_timeout_seconds", "max_quick_restarts", "max_restart_delay_seconds"),
    *("TRITON_BATCH_STRATEGY_PATH", "try_it"),
)
"""Read for models of every backend."""

KEYS: dict[str, tuple[str, ...]] = {
    "dali": ("num_threads", "release_after_unload"),
    "fil": (
        *("model_type", "is_classifier", "output_class", "predict_proba", "threshold"),
        *("nthread", "xgboost_allow_unknown_field"),
    ),
    "onnxruntime": (
        *("intra_op_thread_count", "inter_op_thread_count", "execution_mode"),
        *("enable_mem_arena", "enable_mem_pattern", "memory.enable_memory_arena_shrinkage"),
        *("session.use_device_allocator_for_initializers", "gpu_mem_limit"),
        *("cudnn_conv_algo_search", "arena_extend_strategy", "do_copy_in_default_stream"),
    ),
    "openvino": (
        *("TARGET_DEVICE", "SKIP_OV_DYNAMIC_BATCHSIZE", "ENABLE_BATCH_PADDING"),
        *("RESHAPE_IO_LAYERS", "INFERENCE_PRECISION_HINT", "HINT_BF16", "INFERENCE_NUM_THREADS"),
        *("COMPILATION_NUM_THREADS", "NUM_STREAMS", "PERFORMANCE_HINT", "CPU_EXTENSION_PATH"),
    ),
    "python": ("EXECUTION_ENV_PATH",),
    "pytorch": (
        *("DISABLE_OPTIMIZED_EXECUTION", "INFERENCE_MODE", "DISABLE_CUDNN"),
        *("ENABLE_WEIGHT_SHARING", "ENABLE_JIT_EXECUTOR", "ENABLE_JIT_PROFILING"),
        *("ENABLE_TENSOR_FUSER", "INTER_OP_THREAD_COUNT", "INTRA_OP_THREAD_COUNT"),
        *("ENABLE_CACHE_CLEANING", "NUM_THREADS", "NUM_INTEROP_THREADS"),
        *("TORCH_COMPILE_OPTIONAL_PARAMETERS", "MODEL_INIT_LIBRARY"),
    ),
    "tensorflow": (
        *("TF_NUM_INTRA_THREADS", "TF_NUM_INTER_THREADS", "TF_USE_PER_SESSION_THREADS"),
        *("TF_GRAPH_TAG", "TF_SIGNATURE_DEF", "TF_INIT_OPS_FILE", "MAX_SESSION_SHARE_COUNT"),
    ),
    "tensorrt": ("library", "execution_context_allocation_strategy"),
    "tensorrtllm": (
        *("EXECUTION_ENV_PATH", "gpt_model_path", "engine_dir", "tokenizer_dir"),
        *("max_beam_width", "kv_cache_free_gpu_mem_fraction", "max_tokens_in_paged_kv_cache"),
        *("enable_kv_cache_reuse",),
    ),
    "vllm": ("EXECUTION_ENV_PATH", "ENABLE_VLLM_HEALTH_CHECK", "REPORT_CUSTOM_METRICS"),
}


def keys_by_name() -> dict[str, list[str]]:
    """For each backend, and each platform that stands for one; "" holds those of all backends."""
    names = {item.platform: item.backend for item in MODEL_FILES if item.platform}
    names |= {backend: backend for backend in KEYS}
    found = {name: sorted((*KEYS.get(names[name], ()), *EVERYWHERE)) for name in names}
    return found | {"": sorted(EVERYWHERE)}
