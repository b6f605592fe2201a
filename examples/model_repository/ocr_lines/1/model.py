"""The detector's map and the picture -> boxes in reading order, and the lines as one batch."""

import boxes
import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image

HEIGHT = 48
NARROWEST, WIDEST, WIDTH_STEP = 320, 1280, 160
# As many as the recogniser takes at once; of a fuller page the surest lines are read.
MOST_LINES = 64


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        picture = pb_utils.get_input_tensor_by_name(request, "PICTURE").as_numpy()
        text_map = pb_utils.get_input_tensor_by_name(request, "TEXT_MAP").as_numpy()[0, 0]
        found = boxes.find(text_map, MOST_LINES)
        scale = np.array(picture.shape[1::-1]) / np.array(text_map.shape[::-1])
        corners = [boxes.clip(box * scale, picture.shape) for box in boxes.reading_order(found)]
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("LINES", line_batch(picture, corners)),
                pb_utils.Tensor("BOXES", box_tensor(corners)),
            ]
        )


def box_tensor(corners):
    """Where no line was found, one empty box: a batch is never empty."""
    return np.array(corners or [np.zeros((4, 2))], np.float32)


def line_batch(picture, corners):
    """FP32 [lines, 3, 48, width]: blue, green, red from -1 to 1, 0 to the right of a line."""
    image = Image.fromarray(picture)
    lines = [cut_out(image, box) for box in corners]
    longest = max([NARROWEST, *(line.width for line in lines)])
    width = -(-longest // WIDTH_STEP) * WIDTH_STEP
    batch = np.zeros((max(1, len(lines)), 3, HEIGHT, width), np.float32)
    for place, line in zip(batch, lines, strict=False):
        blue_first = np.asarray(line, np.float32)[:, :, ::-1].transpose(2, 0, 1)
        place[:, :, : line.width] = blue_first / 127.5 - 1
    return batch


def cut_out(image, box):
    """The line upright, 48 pixels high."""
    upper_left, upper_right, lower_right, lower_left = box
    width = max(1, round(float(np.linalg.norm(upper_right - upper_left))))
    height = max(1, round(float(np.linalg.norm(lower_left - upper_left))))
    quad = [float(value) for value in (*upper_left, *lower_left, *lower_right, *upper_right)]
    line = image.transform(
        (width, height), Image.Transform.QUAD, quad, resample=Image.Resampling.BICUBIC
    )
    if height >= 1.5 * width:
        line = line.transpose(Image.Transpose.ROTATE_90)
    scaled = round(HEIGHT * line.width / line.height)
    return line.resize((min(WIDEST, max(1, scaled)), HEIGHT), Image.Resampling.BICUBIC)
