"""An image file -> its pixels, and a copy scaled and normalised for the text detector."""

import io

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image, ImageOps, UnidentifiedImageError

LONGEST_SIDE = 960
STRIDE = 32
MOST_PIXELS = 40_000_000
# Of ImageNet, in the order blue, green, red, as the detector was trained.
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        [content] = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy().ravel()
        try:
            picture = read_picture(content)
        except ValueError as error:
            refusal = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=refusal)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("PICTURE", np.asarray(picture)),
                pb_utils.Tensor("PIXELS", detector_pixels(picture)),
            ]
        )


def read_picture(content):
    """RGB, turned as its camera says, on white where it is transparent. Raises ValueError."""
    try:
        picture = Image.open(io.BytesIO(content))
        if picture.width * picture.height > MOST_PIXELS:
            raise ValueError(
                f"IMAGE has {picture.width} x {picture.height} pixels; send at most "
                f"{MOST_PIXELS:,} of them."
            )
        picture = ImageOps.exif_transpose(picture)
        if picture.has_transparency_data:
            picture = picture.convert("RGBA")
            paper = Image.new("RGBA", picture.size, "white")
            picture = Image.alpha_composite(paper, picture)
        return picture.convert("RGB")
    except UnidentifiedImageError as error:
        raise ValueError(
            "IMAGE is not an image. Send the content of a PNG, JPEG or WebP file."
        ) from error
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"IMAGE cannot be read to its end: {error}. Send a whole file.") from error


def detector_pixels(picture):
    """FP32 [1, 3, height, width]."""
    scale = min(1.0, LONGEST_SIDE / max(picture.size))
    size = [max(STRIDE, round(side * scale / STRIDE) * STRIDE) for side in picture.size]
    scaled = np.asarray(picture.resize(size, Image.Resampling.BILINEAR), np.float32)
    blue_first = (scaled[:, :, ::-1] / 255 - MEAN) / DEVIATION
    return np.ascontiguousarray(blue_first.transpose(2, 0, 1)[np.newaxis])
