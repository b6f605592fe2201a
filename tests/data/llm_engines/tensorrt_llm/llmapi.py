from dataclasses import dataclass


@dataclass
class KvCacheConfig:
    free_gpu_memory_fraction: float | None = None
    max_tokens: int | None = None
    enable_block_reuse: bool = True
