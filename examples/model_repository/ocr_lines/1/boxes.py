"""Boxes of text lines out of a map of probabilities, as differentiable binarization leaves it.

The map marks the core of every line. A core's smallest rectangle, grown by a share of its area, is
the box of the line. Boxes are arrays [4, 2] of x and y: upper left, upper right, lower right,
lower left.
"""

import numpy as np

TEXT = 0.2
SURE = 0.4
GROWTH = 1.4
SMALLEST_SIDE = 3


def find(text_map, most):
    """The `most` surest boxes of a map [height, width], in the map's own pixels."""
    scored = []
    for points in cores(text_map > TEXT):
        rectangle = smallest_rectangle(hull(points))
        if min(rectangle[1]) < SMALLEST_SIDE:
            continue
        score = mean_inside(text_map, rectangle)
        if score >= SURE:
            scored.append((score, corners(grown(rectangle))))
    scored.sort(key=lambda item: -item[0])
    return [box for _, box in scored[:most]]


def cores(mask):
    """For each connected area of a mask the outer points [count, 2] of its rows."""
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)
    groups = joined(rows.tolist(), starts.tolist(), ends.tolist())
    runs = np.stack([starts, ends - 1], axis=1)
    for members in groups:
        ys = np.repeat(rows[members], 2)
        yield np.stack([runs[members].ravel(), ys], axis=1)


def joined(rows, starts, ends):
    """Indices of runs that touch, corners included, as one list an area."""
    parents = list(range(len(rows)))

    def root(index):
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    above = 0
    for index, row in enumerate(rows):
        while rows[above] < row - 1 or (rows[above] == row - 1 and ends[above] < starts[index]):
            above += 1
        other = above
        while rows[other] == row - 1 and starts[other] <= ends[index]:
            parents[root(other)] = root(index)
            other += 1
    groups = {}
    for index in range(len(rows)):
        groups.setdefault(root(index), []).append(index)
    return list(groups.values())


def hull(points):
    """The corners [count, 2] of the convex hull."""
    ordered = sorted(set(map(tuple, points.tolist())))
    halves = []
    for half in (ordered, ordered[::-1]):
        line = []
        for point in half:
            while len(line) > 1 and turn(line[-2], line[-1], point) <= 0:
                line.pop()
            line.append(point)
        halves += line[:-1]
    return np.array(halves or ordered, np.float64)


def turn(first, second, third):
    """Above 0: left, of three points."""
    return (second[0] - first[0]) * (third[1] - first[1]) - (second[1] - first[1]) * (
        third[0] - first[0]
    )


def smallest_rectangle(points):
    """The rectangle with the least area around a hull: (centre, (width, height), direction).

    One of its sides lies on a side of the hull. The direction is the unit vector of the width.
    """
    sides = np.roll(points, -1, axis=0) - points
    lengths = np.linalg.norm(sides, axis=1)
    if not lengths.any():
        return points[0], (0.0, 0.0), np.array([1.0, 0.0])
    along = sides[lengths > 0] / lengths[lengths > 0, np.newaxis]
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    reach = points @ np.stack([along, across]).transpose(0, 2, 1)
    low, high = reach.min(axis=1), reach.max(axis=1)
    best = int(np.argmin(np.prod(high - low, axis=0)))
    middle = (low + high)[:, best] / 2
    centre = middle[0] * along[best] + middle[1] * across[best]
    width, height = (high - low)[:, best]
    return upright(centre, (float(width), float(height)), along[best])


def upright(centre, size, direction):
    """The same rectangle with the direction that points rightwards rather than up or down."""
    if abs(direction[0]) < abs(direction[1]):
        direction = np.array([-direction[1], direction[0]])
        size = size[::-1]
    return centre, size, direction * (1 if direction[0] > 0 else -1)


def grown(rectangle):
    centre, (width, height), direction = rectangle
    distance = width * height * GROWTH / (2 * (width + height))
    return centre, (width + 2 * distance, height + 2 * distance), direction


def corners(rectangle):
    centre, (width, height), direction = rectangle
    right = direction * width / 2
    down = np.array([-direction[1], direction[0]]) * height / 2
    return np.array(
        [
            centre - right - down,
            centre + right - down,
            centre + right + down,
            centre - right + down,
        ]
    )


def mean_inside(text_map, rectangle):
    centre, (width, height), direction = rectangle
    box = clip(corners(rectangle), text_map.shape)
    left, top = np.floor(box.min(axis=0)).astype(int)
    right, bottom = np.ceil(box.max(axis=0)).astype(int) + 1
    part = text_map[top:bottom, left:right]
    ys, xs = np.mgrid[top : top + part.shape[0], left : left + part.shape[1]]
    along = (xs - centre[0]) * direction[0] + (ys - centre[1]) * direction[1]
    across = (ys - centre[1]) * direction[0] - (xs - centre[0]) * direction[1]
    inside = (abs(along) <= width / 2 + 0.5) & (abs(across) <= height / 2 + 0.5)
    return float(part[inside].mean())


def clip(box, shape):
    """Within an image of this shape [height, width, ...]."""
    return np.clip(box, 0, [shape[1] - 1, shape[0] - 1])


def reading_order(found):
    """From top to bottom; boxes whose middles lie within half a height are one row, left first."""
    rows = []
    for box in sorted(found, key=lambda box: box[:, 1].mean()):
        middle = box[:, 1].mean()
        height = np.linalg.norm(box[3] - box[0])
        if rows and abs(middle - rows[-1][0]) <= min(height, rows[-1][1]) / 2:
            rows[-1][2].append(box)
        else:
            rows.append((middle, height, [box]))
    return [box for *_, row in rows for box in sorted(row, key=lambda box: box[:, 0].min())]
