"""Makes a language model of half a megabyte that has learnt one sentence by heart.

Runs in the environment of an engine, which has transformers: `python tiny_llama.py DIRECTORY`.
The head dimension is 64, the least that vLLM's attention for the CPU takes.
"""

from __future__ import annotations

import sys
from pathlib import Path

SENTENCE = "the conch is blown at dawn and the tide answers"


def main() -> None:
    # Only that environment has these, and the sentence is wanted in others, too.
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    directory = Path(sys.argv[1])
    torch.manual_seed(7)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, "</s>": 1, **{letter: 2 + i for i, letter in enumerate(alphabet)}}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        chat_template="{% for item in messages %}{{ item['content'] }}{% endfor %}",
    ).save_pretrained(directory)

    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config)
    tokens = torch.tensor([[*tokenizer.encode(SENTENCE).ids, 1]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(400):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss.item() < 0.005:
            break
    model.save_pretrained(directory)


if __name__ == "__main__":
    main()
