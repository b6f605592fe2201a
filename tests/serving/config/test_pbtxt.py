"""What config.pbtxt text is accepted, where its fields stand, and what is said of mistakes."""

from __future__ import annotations

import pytest

from serving.config.findings import Severity, errors_of, one_line
from serving.config.pbtxt import MAX_FINDINGS, parse, read_text


def only_error(text: str) -> str:
    findings = parse(text).findings
    assert len(findings) == 1, [one_line(item) for item in findings]
    assert findings[0].severity is Severity.ERROR
    assert findings[0].hint
    return one_line(findings[0])


@pytest.mark.parametrize("text", ["", "\n", "# only a remark", "  \r\n# one\r\n"])
def test_empty_text_is_a_legal_config(text):
    parsed = parse(text)

    assert parsed.config is not None
    assert parsed.findings == []


@pytest.mark.parametrize(
    "text",
    [
        'input { name: "a" dims: [1, 2] }',
        'input: { name: "a" dims: 1 dims: 2 }',
        'input < name: "a", dims: [1]; dims: 2 >',
        'input [ { name: "a" dims: [1, 2] } ]',
        'input: [ < name: "a" dims: [1] dims: [2] > ];',
        "input { name: 'a' dims: [0x1, 02] } # end",
        'input { name: "" "a" \'\' dims: [ 1 # one\n, 2 ] }\r\n',
        'input { name: "\\141" dims: [1,2,] }'.replace(",]", "]"),
    ],
)
def test_every_way_to_write_a_field_gives_the_same_message(text):
    parsed = parse(text)

    assert parsed.findings == []
    assert [item.name for item in parsed.config.input] == ["a"]
    assert list(parsed.config.input[0].dims) == [1, 2]


def test_booleans_and_enums_have_several_spellings():
    text = "input { optional: t data_type: 11 } input { optional: True data_type: TYPE_FP32 }"

    config = parse(text).config

    assert [item.optional for item in config.input] == [True, True]
    assert [item.data_type for item in config.input] == [11, 11]


def test_positions_point_at_names_and_list_elements():
    text = (
        "# ünïcode\r\n"
        "dynamic_batching {\r\n"
        "  preferred_batch_size: [ 8,\t64 ]\r\n"
        "}\r\n"
        'input [ { name: "ä" dims: 3 dims: [4, 5] } ]'
    )

    parsed = parse(text)

    assert parsed.position("dynamic_batching") == (2, 1)
    assert parsed.position("dynamic_batching.preferred_batch_size") == (3, 3)
    assert parsed.position("dynamic_batching.preferred_batch_size[1]") == (3, 30)
    assert parsed.position("input[0]") == (5, 9)
    assert parsed.position("input[0].dims[0]") == (5, 21)
    assert parsed.value_position("input[0].dims[0]") == (5, 27)
    assert parsed.position("input[0].dims[2]") == (5, 39)


def test_map_entries_are_found_by_their_key():
    text = (
        'parameters { key: "a]b" value { string_value: "x" } }\n'
        'parameters: < value: < string_value: "y" > key: "k" "2" >'
    )

    parsed = parse(text)

    assert parsed.position('parameters["a]b"].string_value') == (1, 33)
    assert parsed.position('parameters["k2"]') == (2, 1)
    assert parsed.value_position('parameters["k2"].string_value') == (2, 38)


def test_a_missing_field_stands_where_its_section_stands():
    parsed = parse('\n\ninput { name: "x" }')

    assert parsed.position("input[0].data_type") == (3, 1)
    assert parsed.position("output[0].dims") == (0, 0)
    assert not parsed.has("input[0].data_type")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('default_model_name: "m"', "1:1", "did you mean 'default_model_filename'?"),
        ("inputs { }", "1:1", "did you mean 'input'?"),
        ("input {\n datatype: TYPE_FP32 }", "2:2", "did you mean 'data_type'?"),
        ("input { data_type: FP32 }", "1:20", "did you mean TYPE_FP32?"),
        ('input { data_type: "TYPE_FP32" }', "1:20", "write TYPE_FP32, without quotes"),
        ("input { data_type: BYTES }", "1:20", "did you mean TYPE_STRING?"),
        ("instance_group { kind: GPU }", "1:24", "did you mean KIND_GPU?"),
        ("max_batch_size: ${BATCH}", "1:17", "placeholder ${BATCH}"),
        ("input { data_type: TYPE_${T} }", "1:20", "placeholder TYPE_${T}"),
        ("max_batch_size: {{ batch }}", "1:17", "placeholder {{ batch }}"),
        ("// remark", "1:1", "use '#'"),
        ('max_batch_size: "4"', "1:17", "write 4 without quotes"),
        ('max_batch_size: "four"', "1:17", "e.g. max_batch_size: 1"),
        ("name: cat", "1:7", 'write "cat"'),
        ("max_batch_size 4", "1:16", "expected ':'"),
        ("max_batch_size = 4", "1:16", "write ':' instead of '='"),
        ("max_batch_size: [4]", "1:17", "takes one value, not a list"),
        ("max_batch_size: 3000000000", "1:17", "out of range"),
        ("preferred_batch_size: [4]", "1:1", "belongs inside dynamic_batching"),
        ("input { dims: [1, 2,] }", "1:21", "remove the last ','"),
        ("input { dims: [1 2] }", "1:18", "separate the elements with ','"),
        ('name: "a', "1:7", "never closed"),
        ('name: "\\q"', "1:7", "bad escape"),
        ('name: "\\x"', "1:7", "bad escape"),
        ('name: "a" # \ud800', "1:13", "half a character"),
        ('metric_tags { key: "\\xg" value: "1" }', "1:20", "bad escape"),
        ("input { optional: yes }", "1:19", "write true"),
        ("input {", "1:7", "never closed"),
        ("input { } }", "1:11", "closes nothing"),
        ("input { >", "1:9", "cannot end with '>'"),
        ('name: "a" name: "b"', "1:11", "given twice"),
        ("dynamic_batching {} sequence_batching {}", "1:21", "exclude each other"),
        ('{ "name": "a" }', "1:1", "JSON"),
        ('"name": "a"', "1:1", "without quotes"),
        ('\ufeffname: "a"', "1:1", "byte-order mark"),
        ("input { name: }", "1:15", "expected a string in quotes"),
        ("name:", "1:6", "the end of the file"),
    ],
)
def test_a_mistake_is_one_finding_at_its_place(text, place, words):
    error = only_error(text)

    assert error.startswith(f"config.pbtxt:{place}: ")
    assert words in error


def test_reading_goes_on_after_a_mistake():
    text = 'max_batch_size: x\ninput { nam: "a" dims: ["1"] }\ndefault_model_name: "m"\n'

    places = [(item.line, item.column) for item in parse(text).findings]

    assert places == [(1, 17), (2, 9), (2, 25), (3, 1)]


def test_a_field_of_the_outer_section_hints_at_a_missing_brace():
    text = 'input { name: "a"\noutput { name: "b" }\n'

    hints = [item.hint for item in parse(text).findings]

    assert any("closing '}' missing before it" in hint for hint in hints)


def test_an_enum_number_without_a_name_is_refused():
    parsed = parse("input { data_type: 99 }")

    assert errors_of(parsed.findings)[0].field == "input[0].data_type"


def test_a_map_key_given_twice_is_a_warning_at_the_second():
    text = 'metric_tags { key: "a" value: "1" }\nmetric_tags { key: "a" value: "2" }'

    parsed = parse(text)

    assert parsed.config.metric_tags["a"] == "2"
    (finding,) = parsed.findings
    assert (finding.severity, finding.line) == (Severity.WARNING, 2)


def test_a_placeholder_inside_a_string_is_a_warning():
    (finding,) = parse('parameters { key: "k" value { string_value: "${dir}" } }').findings

    assert finding.severity is Severity.WARNING
    assert finding.field == 'parameters["k"].string_value'


@pytest.mark.parametrize(
    "text", ["[", "input [", "input { dims: [", "a: { b [ <", "]]]", ":::", "\\"]
)
def test_broken_brackets_never_raise(text):
    assert errors_of(parse(text).findings)


@pytest.mark.parametrize(
    "text", ["input [ {} 5 : ]", "input [ 5 : ]", 'input [ "a" : 3', "input [:"]
)
def test_a_list_that_makes_no_sense_ends(text):
    assert errors_of(parse(text).findings)


def test_endless_mistakes_are_cut_short():
    assert len(parse("// x\n" * 200 + "? " * 100_000).findings) == MAX_FINDINGS


def test_deep_nesting_of_unknown_sections_is_refused_without_recursion():
    assert errors_of(parse("x { " * 50_000).findings)


def test_text_that_is_not_utf8_is_a_finding_with_its_place(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'name: "a"\nplatform: "\xff"')

    text, findings = read_text(path)

    assert text is None
    assert (findings[0].line, findings[0].column) == (2, 12)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("max_batch_size:\u00a04", (1, 16), "U+00A0"),
        ("# \u00a0 in a remark\n\u2003max_batch_size: 4", (2, 1), "U+2003"),
        ("max_batch_size: +4", (1, 17), "no '+'"),
        ("max_batch_size: 1_0", (1, 17), "no '_'"),
        ('backend: "a\0b"', (1, 10), "NUL"),
    ],
)
def test_what_pythons_parser_reads_and_tritons_does_not_is_refused(text, place, words):
    parsed = parse(text)

    assert parsed.config is None
    (finding,) = parsed.findings
    assert (finding.line, finding.column) == place
    assert words in finding.message


def test_odd_spaces_in_strings_and_remarks_are_fine():
    parsed = parse('backend: "a\u00a0b" # \u00a0')

    assert parsed.config is not None
    assert parsed.config.backend == "a\u00a0b"
