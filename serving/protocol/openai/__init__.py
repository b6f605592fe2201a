"""OpenAI's JSON for text and embeddings, and how a model's tensors speak it. Pure; any thread."""
