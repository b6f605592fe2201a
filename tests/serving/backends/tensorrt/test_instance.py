"""Batches through an instance: staging, profiles, graphs, shape tensors, allocators, errors.

The device is host memory and the engine a function; what is under test is all that lies between
TensorInstance and TensorRT's objects. tests/gpu/test_tensorrt.py has both for real.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from serving.backends.base import ExecutionTimes
from serving.backends.tensorrt.cuda_runtime import Device
from serving.backends.tensorrt.instance import TensorRTInstance
from serving.backends.tensorrt.options import EngineSettings, read_settings
from serving.backends.tensorrt.profiles import Profile, ShapeRange
from serving.backends.tensorrt.signature import EngineTensor
from serving.errors import BackendError, InvalidArgumentError
from tests.serving.backends.tensorrt.fake_device import FakeDeviceEngine, FakeModel, shapes_of
from tests.serving.loading import context_of, request_of

ROWS = """
name: "m" backend: "tensorrt" max_batch_size: 16
input { name: "X" data_type: TYPE_FP32 dims: [-1] }
output { name: "Y" data_type: TYPE_FP32 dims: [-1] }
output { name: "Z" data_type: TYPE_FP32 dims: [-1] }
"""


def span(low, best, high) -> ShapeRange:
    return ShapeRange(tuple(low), tuple(best), tuple(high))


def rows_model() -> FakeModel:
    """Y = 2 X, Z = X + 1; few rows, or many."""
    return FakeModel(
        (EngineTensor("X", "FLOAT", (-1, -1)),),
        (EngineTensor("Y", "FLOAT", (-1, -1)), EngineTensor("Z", "FLOAT", (-1, -1))),
        (
            Profile(0, {"X": span((1, 1), (2, 4), (4, 8))}, {}),
            Profile(1, {"X": span((1, 1), (16, 4), (16, 8))}, {}),
        ),
        lambda given: {"Y": 2 * given["X"], "Z": given["X"] + 1},
        shapes_of(("Y", "Z"), "X"),
    )


class Served:
    """An instance on the fake device, asked with whole batches."""

    def __init__(self, model: FakeModel, config: str, device: Device, driver: Any, *numbers: int):
        self.model = model
        context = context_of(config)
        self.engine = FakeDeviceEngine(model, driver, device)
        settings = read_settings(context)
        self.instance = TensorRTInstance(context, self.engine, settings, numbers or (0,))

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.instance.close()

    def ask(self, *batch: dict, outputs: tuple[str, ...] = ()) -> list[dict[str, np.ndarray]]:
        answers: list[dict[str, np.ndarray]] = []
        requests = []
        for inputs in batch:
            request = request_of(inputs, model="m", outputs=outputs)
            request.batch_size = next((item.shape[0] for item in inputs.values()), 1)
            request.responder = lambda request, response: answers.append(
                {item.name: item.array for item in response.outputs}
            )
            requests.append(request)
        self.instance.execute(requests, ExecutionTimes())
        return answers


@pytest.fixture
def serve(device, fake_driver):
    """Makes instances, closed when the test is over."""
    made: list[Served] = []

    def start(model: FakeModel, config: str, *numbers: int) -> Served:
        made.append(Served(model, config, device, fake_driver, *numbers))
        return made[-1]

    yield start
    for served in made:
        served.instance.close()


def numbers(rows: int, columns: int = 3, start: float = 0) -> np.ndarray:
    return np.arange(start, start + rows * columns, dtype=np.float32).reshape(rows, columns)


def test_a_batch_is_copied_once_in_and_once_out_for_each_tensor(serve, fake_driver):
    """TRT-04: three requests, one upload of X, one download of each output."""
    served = serve(rows_model(), ROWS)
    fake_driver.fake_copies()

    first, second, third = served.ask(
        {"X": numbers(1)}, {"X": numbers(2, start=9)}, {"X": numbers(1, start=50)}
    )

    assert fake_driver.fake_copies() == 3
    np.testing.assert_array_equal(first["Y"], 2 * numbers(1))
    np.testing.assert_array_equal(second["Z"], numbers(2, start=9) + 1)
    np.testing.assert_array_equal(third["Y"], 2 * numbers(1, start=50))


def test_only_outputs_that_are_wanted_are_copied_out(serve, fake_driver):
    served = serve(rows_model(), ROWS)
    fake_driver.fake_copies()

    (answer,) = served.ask({"X": numbers(2)}, outputs=("Z",))

    assert list(answer) == ["Z"]
    assert fake_driver.fake_copies() == 2


def test_an_answer_stays_as_it_was_when_the_next_batch_runs(serve):
    """The staging memory is written again; what callers hold is theirs."""
    served = serve(rows_model(), ROWS)
    (first,) = served.ask({"X": numbers(2)})
    kept = first["Y"].copy()

    served.ask({"X": numbers(2, start=100)})

    np.testing.assert_array_equal(first["Y"], kept)


def test_the_profile_nearest_to_the_batch_runs_it(serve):
    """CFG-066: each profile of the instance has a context; shapes choose among them."""
    served = serve(rows_model(), ROWS, 0, 1)

    served.ask({"X": numbers(2)})
    served.ask({"X": numbers(12)})

    assert [(item.profile, item.runs) for item in served.model.contexts] == [(0, 1), (1, 1)]


def test_a_batch_that_no_profile_takes_is_the_callers_mistake(serve):
    """What is sent and what every profile takes are both said."""
    served = serve(rows_model(), ROWS)

    with pytest.raises(InvalidArgumentError) as caught:
        served.ask({"X": numbers(5)})

    assert "shape [5, 3], taken is [1 to 4, 1 to 8]" in caught.value.message
    served.ask({"X": numbers(1)})  # and the next one is served


def test_a_profile_that_the_group_does_not_name_is_not_used(serve):
    served = serve(rows_model(), ROWS, 1)
    served.ask({"X": numbers(1)})

    assert [item.profile for item in served.model.contexts] == [1]


GRAPHS = (
    ROWS.replace("dims: [-1]", "dims: [4]")
    + """
optimization { cuda { graphs: true %s } }
"""
)


def test_graphs_are_recorded_for_one_row_preferred_sizes_and_the_largest_batch(serve):
    """CFG-082: each in a context of its own, whose memory is the instance's scratch."""
    config = GRAPHS % "" + "dynamic_batching { preferred_batch_size: [2, 4] }"
    served = serve(rows_model(), config)
    plain, *recorded = served.model.contexts

    assert len(recorded) == 3  # 1, 2 and 4; 16 is beyond the profile
    assert {item.strategy for item in recorded} == {"USER_MANAGED"}

    for rows in (1, 2, 3, 4):
        (answer,) = served.ask({"X": numbers(rows, 4)})
        np.testing.assert_array_equal(answer["Y"], 2 * numbers(rows, 4))
    assert plain.runs == 1, "three rows have no graph"
    assert [item.runs for item in recorded] == [2, 2, 2], "once to prepare, once as a graph"


def test_a_graph_with_a_lower_bound_serves_smaller_batches(serve):
    """CFG-082: missing rows and columns are zeros, not what lay there before."""
    bound = (
        'graph_spec { batch_size: 4 input { key: "X" value { dim: [8] } } graph_lower_bound '
        '{ batch_size: 2 input { key: "X" value { dim: [4] } } } }'
    )
    config = ROWS + f"optimization {{ cuda {{ graphs: true {bound} }} }}"
    served = serve(rows_model(), config)
    plain, recorded = served.model.contexts
    served.ask({"X": numbers(4, 8, 70)})

    (answer,) = served.ask({"X": numbers(3, 5)})

    assert (plain.runs, recorded.runs) == (0, 3)
    assert answer["Y"].shape == (3, 8)
    np.testing.assert_array_equal(answer["Y"][:, :5], 2 * numbers(3, 5))
    np.testing.assert_array_equal(answer["Y"][:, 5:], 0)
    served.ask({"X": numbers(1, 5)})
    assert plain.runs == 1, "below the bound"


def resize_model() -> FakeModel:
    """Y is X repeated to the shape that S says; S comes back as T."""

    def compute(given):
        rows, columns = given["S"]
        return {"Y": np.full((rows, columns), given["X"][0, 0]), "T": given["S"]}

    return FakeModel(
        (
            EngineTensor("X", "FLOAT", (-1, 1)),
            EngineTensor("S", "INT32", (2,), is_shape_tensor=True),
        ),
        (
            EngineTensor("Y", "FLOAT", (-1, -1)),
            EngineTensor("T", "INT32", (2,), is_shape_tensor=True),
        ),
        (
            Profile(
                0,
                {"X": span((1, 1), (2, 1), (4, 1)), "S": span((2,), (2,), (2,))},
                {"S": span((1, 1), (2, 3), (4, 9))},
            ),
        ),
        compute,
        lambda shapes, values: {"Y": values["S"], "T": (2,)},
    )


RESIZE = """
name: "m" backend: "tensorrt" max_batch_size: 4
input { name: "X" data_type: TYPE_FP32 dims: [1] }
input { name: "S" data_type: TYPE_INT32 dims: [1] is_shape_tensor: true }
output { name: "Y" data_type: TYPE_FP32 dims: [-1] }
output { name: "T" data_type: TYPE_INT32 dims: [1] is_shape_tensor: true }
"""


def test_the_batch_size_goes_before_the_values_of_a_shape_tensor(serve, fake_driver):
    """CFG-035: the server adds it on the way in and takes it away on the way out."""
    served = serve(resize_model(), RESIZE)
    columns = np.array([5], np.int32)
    fake_driver.fake_copies()

    first, second = served.ask(
        {"X": numbers(1, 1, 7), "S": columns}, {"X": numbers(2, 1, 7), "S": columns}
    )

    assert fake_driver.fake_copies() == 2, "shape tensors stay on the host"
    assert (first["Y"].shape, second["Y"].shape) == ((1, 5), (2, 5))
    np.testing.assert_array_equal(second["T"], [[5], [5]])


def test_values_of_a_shape_tensor_beyond_the_profile_are_refused(serve):
    served = serve(resize_model(), RESIZE)

    with pytest.raises(
        InvalidArgumentError, match=r"'S' holds \[1, 10\], taken is \[1 to 4, 1 to 9"
    ):
        served.ask({"X": numbers(1, 1), "S": np.array([10], np.int32)})


def test_changed_values_of_a_shape_tensor_change_the_answer(serve):
    """The shapes of all inputs stay what they were; the outputs' do not."""
    served = serve(resize_model(), RESIZE)
    for columns in (2, 9, 3):
        (answer,) = served.ask({"X": numbers(1, 1), "S": np.array([columns], np.int32)})
        assert answer["Y"].shape == (1, columns)


def positives_model() -> FakeModel:
    return FakeModel(
        (EngineTensor("X", "FLOAT", (-1,)),),
        (EngineTensor("Y", "FLOAT", (-1,)),),
        (Profile(0, {"X": span((1,), (4,), (1000,))}, {}),),
        lambda given: {"Y": given["X"][given["X"] > 0]},
        lambda shapes, values: {"Y": (-1,)},
    )


POSITIVES = """
name: "m" backend: "tensorrt"
input { name: "X" data_type: TYPE_FP32 dims: [-1] }
output { name: "Y" data_type: TYPE_FP32 dims: [-1] }
"""


def test_an_output_whose_size_only_the_run_tells_is_allocated_by_it(serve):
    """TRT-04, data-dependent shapes: memory grows with the answers."""
    served = serve(positives_model(), POSITIVES)
    for size in (3, 900, 1):
        values = np.linspace(-1, 1, size, dtype=np.float32)
        (answer,) = served.ask({"X": values})
        np.testing.assert_array_equal(answer["Y"], values[values > 0])


def test_memory_that_is_not_there_for_such_an_output_fails_the_request_alone(serve, fake_driver):
    served = serve(positives_model(), POSITIVES)
    fake_driver.fake_limit(100)

    with pytest.raises(BackendError, match=r"no 3600 bytes left for output 'Y'"):
        served.ask({"X": np.ones(900, np.float32)})

    fake_driver.fake_limit(1 << 30)
    (answer,) = served.ask({"X": np.ones(900, np.float32)})
    assert answer["Y"].shape == (900,)


def test_a_scalar_of_the_engine_is_one_element_for_callers(serve):
    model = FakeModel(
        (EngineTensor("X", "INT64", ()),),
        (EngineTensor("Y", "INT64", ()),),
        (Profile(0, {"X": span((), (), ())}, {}),),
        lambda given: {"Y": given["X"] * 3},
        shapes_of(("Y",), "X"),
    )
    config = POSITIVES.replace("FP32", "INT64").replace("-1", "1")

    (answer,) = serve(model, config).ask({"X": np.array([14])})

    np.testing.assert_array_equal(answer["Y"], [42])


def test_an_optional_input_that_is_left_out_is_named(serve):
    model = rows_model()
    with pytest.raises(InvalidArgumentError, match="input 'X' of model 'm' is missing"):
        serve(model, ROWS).ask({})


def test_a_device_without_room_says_what_for_and_keeps_nothing(device, fake_driver):
    """The fixture finds what is left behind."""
    fake_driver.fake_limit(100)
    engine = FakeDeviceEngine(rows_model(), fake_driver, device)

    with pytest.raises(BackendError, match="no 128 bytes left for input 'X': unload another model"):
        TensorRTInstance(context_of(ROWS), engine, EngineSettings(pins_inputs=False), (0,))


def test_a_refused_run_is_told_and_the_next_one_is_served(serve):
    served = serve(rows_model(), ROWS)
    served.model.contexts[0]._scratch = False

    with pytest.raises(BackendError, match="TensorRT: the run was refused"):
        served.ask({"X": numbers(1)})

    served.model.contexts[0]._scratch = True
    assert len(served.ask({"X": numbers(1)})) == 1


@pytest.mark.parametrize(("word", "level"), [("MAX", -5), ("MIN", 0), ("DEFAULT", 0)])
def test_the_models_priority_is_that_of_its_stream(serve, fake_driver, word, level):
    """CFG-081."""
    serve(rows_model(), ROWS + f"optimization {{ priority: PRIORITY_{word} }}")
    assert fake_driver.fake_priority() == level


def test_results_may_leave_through_a_stream_of_their_own(serve):
    """CFG-082: output_copy_stream; busy_wait_events spins instead of sleeping."""
    cuda = "optimization { cuda { output_copy_stream: true busy_wait_events: true } }"
    (answer,) = serve(rows_model(), ROWS + cuda).ask({"X": numbers(2)})
    np.testing.assert_array_equal(answer["Y"], 2 * numbers(2))


def test_memory_is_pinned_unless_the_config_says_no(serve, fake_driver):
    serve(rows_model(), ROWS)
    assert fake_driver.fake_pinned() == 3
    off = "input_pinned_memory { enable: false } output_pinned_memory { enable: false }"
    serve(rows_model(), ROWS + f"optimization {{ {off} }}")
    assert fake_driver.fake_pinned() == 3
