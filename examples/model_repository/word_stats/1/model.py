"""Counts the words of a text: the smallest model that shows the Python backend at work."""

import collections
import re

import numpy as np
import triton_python_backend_utils as pb_utils

WORD = re.compile(r"\w[\w'-]*")


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        rows = [self._count(cell.decode("utf-8", "replace")) for cell in texts.ravel()]
        summaries, words, lengths = (list(column) for column in zip(*rows, strict=True))
        shape = texts.shape
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor(
                    "SUMMARY", np.array([s.encode() for s in summaries], np.object_).reshape(shape)
                ),
                pb_utils.Tensor("WORDS", np.array(words, np.int32).reshape(shape)),
                pb_utils.Tensor("MEAN_LENGTH", np.array(lengths, np.float32).reshape(shape)),
            ]
        )

    @staticmethod
    def _count(text):
        words = WORD.findall(text.lower())
        if not words:
            return "no words", 0, 0.0
        common = collections.Counter(words).most_common(3)
        summary = ", ".join(f"{word} ({count})" for word, count in common)
        return f"most used: {summary}", len(words), sum(map(len, words)) / len(words)
