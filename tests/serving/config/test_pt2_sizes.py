"""Sizes of a compiled program that follow from others, as PyTorch 2.13 writes them down."""

from __future__ import annotations

import pytest

from serving.config.pt2_sizes import SizeRules, read_size_rules

CODE = """
void AOTInductorModel::run_impl(
    AtenTensorHandle* input_handles, // array of input AtenTensorHandle
    AOTIProxyExecutorHandle proxy_executor
) {{
    __check_inputs_outputs(input_handles, output_handles);
    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, 2);
    auto arg0_1 = std::move(inputs[0]);
    auto arg1_1 = std::move(inputs[1]);
    auto arg0_1_size = arg0_1.sizes();
    int64_t arg0_1_size_0 = arg0_1_size[0];
    int64_t s17 = {symbol};
    inputs.clear();
    [[maybe_unused]] auto& kernels = static_cast<AOTInductorModelKernels&>(*this->kernels_.get());
    if (_check_aoti_runtime_check_inputs_env()) {{ assert_size_stride(arg0_1, {{{first}, }}, {{1L, }}, "input"); }}
    if (_check_aoti_runtime_check_inputs_env()) {{ assert_size_stride(arg1_1, {{{second}, }}, {{1L, }}, "input"); }}
"""  # noqa: E501


def rules(symbol="arg0_1_size[0]", first="s17", second="s17"):
    return read_size_rules(CODE.format(symbol=symbol, first=first, second=second))


def test_inputs_of_one_length_must_have_it():
    """PT-12: the code reads the second as far as the first is long."""
    told = rules()

    assert told.refusal([[5], [5]]) is None
    assert told.refusal([[9], [3]]) == (1, "dimension 0 must be s17, 9 here")
    assert told.refusal([[3], [9]]) == (1, "dimension 0 must be s17, 3 here")


@pytest.mark.parametrize(
    ("symbol", "first", "second", "fits", "fails"),
    [
        ("(-1L) + arg0_1_size_0", "1L + s17", "s17", ([5], [4]), ([5], [5])),
        ("(1.0/8.0)*arg0_1_size_0", "8L*s17", "s17", ([16], [2]), ([17], [2])),
        ("arg0_1_size_0", "s17", "2L*s17 + 1L", ([3], [7]), ([3], [6])),
        ("arg0_1_size_0", "s17", "-s17 + 8L", ([3], [5]), ([9], [0])),
        (
            "arg0_1_size_0",
            "s17",
            "c10::div_floor_integer(static_cast<int64_t>(s17), static_cast<int64_t>(2L))",
            ([7], [3]),
            ([7], [4]),
        ),
        ("arg0_1_size_0", "s17", "std::max(s17, 4L)", ([3], [4]), ([3], [3])),
    ],
)
def test_a_size_may_be_computed_from_another(symbol, first, second, fits, fails):
    """PT-12."""
    told = rules(symbol, first, second)

    assert told.refusal(fits) is None
    assert told.refusal(fails) is not None


def test_sizes_that_stand_alone_have_no_rules():
    """A number is checked where the types are."""
    assert rules(second="4L").rules == ()


def test_a_size_that_no_symbol_comes_to_is_refused():
    told = rules("arg0_1_size_0", "s17", "8L/s17")

    assert told.refusal([[0], [8]]) == (0, "its sizes are none that the code was compiled for")


@pytest.mark.parametrize(
    "second",
    [
        "s17**9L",
        "print(s17)",
        "s17 if s17 else 0",
        "arg7_1_size[0]",
        "(" * 3000,
        "s17; s17",
        "s 17",
    ],
)
def test_code_of_another_kind_tells_nothing(second):
    told = rules(second=second)

    assert told is None or told.refusal([[4], [4]]) is not None


def test_code_without_the_sizes_of_its_inputs_tells_nothing():
    """As earlier versions of PyTorch wrote it."""
    assert read_size_rules("") is None
    assert read_size_rules(CODE.replace("assert_size_stride", "other")) is None


def test_a_made_up_source_costs_no_more_than_its_length():
    lines = [
        "void a::run_impl(\n",
        'assert_size_stride(a, {s, }, {1L, }, "input");',
        "int64_t s = ",
    ]

    for line in lines:
        assert read_size_rules(line * 20_000) is None
    much = "".join(f"    int64_t s{number} = 1L;\n" for number in range(5000))
    assert read_size_rules(CODE.replace("    inputs.clear", f"{much}    inputs.clear")) is None


def test_nothing_is_told_of_a_program_without_rules():
    assert SizeRules().refusal([[1], [2]]) is None
