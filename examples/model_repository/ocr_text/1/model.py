"""The recogniser's scores -> the text of each line: greedy CTC decoding."""

import pathlib

import numpy as np
import triton_python_backend_utils as pb_utils

BLANK = 0
SURE = 0.5


class TritonPythonModel:
    def initialize(self, args):
        path = pathlib.Path(args["model_repository"]) / "labels.txt"
        if not path.is_file():
            raise pb_utils.TritonModelException(
                "labels.txt with the recogniser's characters is missing: run "
                "`python -m examples.fetch_models`"
            )
        self.labels = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        characters = pb_utils.get_input_tensor_by_name(request, "CHARACTERS").as_numpy()
        boxes = pb_utils.get_input_tensor_by_name(request, "BOXES").as_numpy()
        texts, scores = read_lines(characters, self.labels)
        kept = np.array([bool(text.strip()) for text in texts]) & (scores >= SURE)
        found = np.array([text.encode() for text in texts], np.object_)[kept]
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("TEXT", found),
                pb_utils.Tensor("SCORE", scores[kept]),
                pb_utils.Tensor("BOX", np.ascontiguousarray(boxes[kept])),
            ]
        )


def read_lines(characters, labels):
    """Scores [lines, steps, classes] -> texts, and their mean scores as FP32 [lines].

    A character stands where the best class changes to one that is not the blank.
    """
    best = characters.argmax(axis=2)
    before = np.pad(best, ((0, 0), (1, 0)), constant_values=BLANK)[:, :-1]
    is_new = (best != BLANK) & (best != before)
    heights = np.take_along_axis(characters, best[:, :, np.newaxis], axis=2)[:, :, 0]
    texts = [
        "".join(labels[index] for index in line[new])
        for line, new in zip(best, is_new, strict=True)
    ]
    counts = np.maximum(is_new.sum(axis=1), 1)
    return texts, ((heights * is_new).sum(axis=1) / counts).astype(np.float32)
