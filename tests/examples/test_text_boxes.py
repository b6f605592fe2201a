"""From the detector's map to boxes: pure geometry, without the detector."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "examples/model_repository/ocr_lines/1/boxes.py"


@pytest.fixture(scope="module")
def boxes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_boxes", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bar(shape: tuple[int, int], left: int, top: int, width: int, height: int) -> np.ndarray:
    text_map = np.zeros(shape, np.float32)
    text_map[top : top + height, left : left + width] = 0.9
    return text_map


def test_a_core_grows_to_the_box_of_its_line(boxes):
    [box] = boxes.find(bar((100, 200), 40, 30, 101, 11), 10)

    # 1.4 x area / perimeter of the rectangle between the outer pixels' middles: 100 x 10.
    grown = 1.4 * 100 * 10 / 220
    expected = [
        [40 - grown, 30 - grown],
        [140 + grown, 30 - grown],
        [140 + grown, 40 + grown],
        [40 - grown, 40 + grown],
    ]
    np.testing.assert_allclose(box, expected, atol=1e-6)


@pytest.mark.parametrize("angle", [-35, -10, 3, 20, 44])
def test_a_turned_core_keeps_its_direction(boxes, angle):
    ys, xs = np.mgrid[0:300, 0:300] - 150
    radians = np.radians(angle)
    along = xs * np.cos(radians) + ys * np.sin(radians)
    across = ys * np.cos(radians) - xs * np.sin(radians)
    inside = (abs(along) <= 80) & (abs(across) <= 8)

    [box] = boxes.find(inside.astype(np.float32), 10)

    side = box[1] - box[0]
    assert np.degrees(np.arctan2(side[1], side[0])) == pytest.approx(angle, abs=1.5)
    np.testing.assert_allclose(box.mean(axis=0), [150, 150], atol=1)
    assert np.linalg.norm(side) > np.linalg.norm(box[3] - box[0])


def test_what_touches_at_a_corner_is_one_line_and_what_does_not_is_two(boxes):
    mask = np.array([[1, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 1], [0, 0, 1, 0, 0, 0]], bool)

    found = sorted(len(points) // 2 for points in boxes.cores(mask))

    assert found == [2, 3]


def test_a_u_of_pixels_is_one_area(boxes):
    mask = np.array([[1, 0, 1], [1, 0, 1], [1, 1, 1]], bool)

    assert len(list(boxes.cores(mask))) == 1


def test_specks_and_doubtful_areas_are_no_lines(boxes):
    speck = bar((60, 60), 5, 5, 3, 2)
    doubtful = bar((60, 60), 5, 30, 40, 10) / 3

    assert boxes.find(np.maximum(speck, doubtful), 10) == []
    assert boxes.find(np.zeros((60, 60), np.float32), 10) == []


def test_of_too_many_lines_the_surest_stay(boxes):
    text_map = bar((90, 90), 5, 5, 60, 9)
    text_map[40:49, 5:65] = 0.5

    [box] = boxes.find(text_map, 1)

    assert box[:, 1].max() < 30


def test_lines_are_read_from_the_top_and_from_the_left_within_a_row(boxes):
    def at(x, y):
        return np.array([[x, y], [x + 50, y], [x + 50, y + 20], [x, y + 20]], float)

    shuffled = [at(200, 104), at(10, 100), at(10, 160), at(80, 10)]

    order = [tuple(box[0]) for box in boxes.reading_order(shuffled)]

    assert order == [(80, 10), (10, 100), (200, 104), (10, 160)]


def test_the_hull_of_one_point_is_that_point(boxes):
    assert boxes.hull(np.array([[3, 4], [3, 4]])).tolist() == [[3, 4]]
    assert boxes.smallest_rectangle(np.array([[3.0, 4.0]]))[1] == (0.0, 0.0)
