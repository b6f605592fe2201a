"""Tiny model files of other frameworks, written byte by byte."""

from __future__ import annotations

import io
import json
import struct
import zipfile

OPENVINO = """<?xml version="1.0"?>
<net name="m" version="11">
  <layers>
    <layer id="0" name="image" type="Parameter" version="opset1">
      <data element_type="{kind}" shape="{shape}"/>
      <output>
        <port id="0" precision="FP32" names="x,alias"><dim>-1</dim><dim>3</dim></port>
      </output>
    </layer>
    <layer id="1" name="net/soft" type="SoftMax">
      <input><port id="0"><dim>-1</dim><dim>3</dim></port></input>
      <output><port id="1" precision="FP32" names="y"><dim>-1</dim><dim>2</dim></port></output>
    </layer>
    <layer id="2" name="net/soft/sink" type="Result">
      <input><port id="0"><dim>-1</dim><dim>2</dim></port></input>
    </layer>
  </layers>
  <edges>
    <edge from-layer="0" from-port="0" to-layer="1" to-port="0"/>
    <edge from-layer="1" from-port="1" to-layer="2" to-port="0"/>
  </edges>
</net>
"""


def openvino(kind: str = "f32", shape: str = "?,3") -> bytes:
    return OPENVINO.format(kind=kind, shape=shape).encode()


# -- protobuf


def varint(value: int) -> bytes:
    out = b""
    value &= 2**64 - 1
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def _tensor_info(kind: int, shape: list[int] | None) -> bytes:
    if shape is None:
        described = number(3, 1)
    else:
        described = b"".join(block(2, number(1, size)) for size in shape)
    return block(1, "some:0") + number(2, kind) + block(3, described)


Tensors = dict[str, tuple[int, list[int] | None]]


def saved_model(inputs: Tensors, outputs: Tensors, name: str = "serving_default") -> bytes:
    def entries(field: int, tensors: Tensors) -> bytes:
        return b"".join(
            block(field, block(1, key) + block(2, _tensor_info(*value)))
            for key, value in tensors.items()
        )

    signature = entries(1, inputs) + entries(2, outputs) + block(3, "tensorflow/serving/predict")
    graph = block(2, b"") + block(5, block(1, name) + block(2, signature))
    return number(1, 1) + block(2, graph)


# -- PyTorch

FORWARD = """\
class Helper(Module):
  def forward(self: __torch__.net.Helper,
    q: Tensor) -> Tensor:
    return q
class Net(Module):
  __parameters__ = []
  training : bool
  helper : __torch__.net.Helper
  def forward(self: __torch__.net.Net{arguments}) -> {result}:
    return x
  def other(self: __torch__.net.Net) -> int:
    return 1
"""


def zipped(members: dict[str, bytes | str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def torchscript(arguments: str = "x: Tensor", result: str = "Tensor") -> bytes:
    written = "".join(f",\n    {item}" for item in arguments.split("; ") if item)
    return zipped(
        {
            "net/data.pkl": b"\x80\x02c__torch__.net\nNet\nq\x00)\x81}q\x01b.",
            "net/code/__torch__/net.py": FORWARD.format(arguments=written, result=result),
            "net/constants.pkl": b"\x80\x02).",
            "net/version": "3\n",
        }
    )


LEAF = None


def treespec(structure: object) -> str:
    """A call specification as PyTorch writes it, of nested lists (tuples), dicts and LEAF."""
    return json.dumps([1, _node(structure)])


def _node(structure: object) -> dict[str, object]:
    if structure is LEAF:
        return {"type": None, "context": None, "children_spec": []}
    if isinstance(structure, dict):
        children = [_node(item) for item in structure.values()]
        keys = json.dumps(list(structure))
        return {"type": "builtins.dict", "context": keys, "children_spec": children}
    assert isinstance(structure, list)
    children = [_node(item) for item in structure]
    return {"type": "builtins.tuple", "context": "null", "children_spec": children}


LEAF_SPEC = treespec(LEAF)


def exported_program(sizes: list[dict[str, object]], dtype: int = 7) -> bytes:
    def user(kind: str, name: str) -> dict[str, object]:
        return {kind: {"arg": {"as_tensor": {"name": name}}}}

    program = {
        "graph_module": {
            "signature": {
                "input_specs": [
                    {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
                    user("user_input", "x"),
                    user("user_input", "mask"),
                ],
                "output_specs": [user("user_output", "add")],
            },
            "graph": {
                "tensor_values": {
                    "p_w": {"dtype": 7, "sizes": []},
                    "x": {"dtype": dtype, "sizes": sizes},
                    "mask": {"dtype": 12, "sizes": [{"as_expr": {"expr_str": "s0"}}]},
                    "add": {"dtype": 7, "sizes": sizes},
                }
            },
            "module_call_graph": [
                {
                    "signature": {
                        "in_spec": treespec([[LEAF], {"mask": LEAF}]),
                        "out_spec": LEAF_SPEC,
                    }
                }
            ],
        }
    }
    return zipped({"net/models/model.json": json.dumps(program), "net/archive_format": "pt2"})


def compiled_program(name: str, source: str, metadata: dict[str, str]) -> bytes:
    """An archive of AOTInductor without its machine code."""
    folder = f"{name}/data/aotinductor/model"
    return zipped(
        {
            f"{folder}/c1.wrapper.cpp": source,
            f"{folder}/c1.wrapper.so": b"\x7fELF",
            f"{folder}/c1.wrapper_metadata.json": json.dumps(metadata),
            f"{name}/archive_format": "pt2",
        }
    )


# -- trees


def ubjson(value: object) -> bytes:
    """As XGBoost writes it: sizes are 64-bit, numbers of an array share their type."""
    if isinstance(value, dict):
        inner = b"".join(_sized(key) + ubjson(item) for key, item in value.items())
        return b"{" + inner + b"}"
    if isinstance(value, list):
        if value and all(isinstance(item, int) for item in value):
            numbers = b"".join(struct.pack(">i", item) for item in value)
            return b"[$l#L" + struct.pack(">q", len(value)) + numbers
        return b"[" + b"".join(ubjson(item) for item in value) + b"]"
    if isinstance(value, str):
        return b"S" + _sized(value)
    if isinstance(value, bool):
        return b"T" if value else b"F"
    if isinstance(value, int):
        return b"l" + struct.pack(">i", value)
    return b"Z"


def _sized(text: str) -> bytes:
    return b"L" + struct.pack(">q", len(text.encode())) + text.encode()


def xgboost(features: int, classes: int = 0) -> dict[str, object]:
    return {
        "learner": {
            "gradient_booster": {"model": {"trees": [{"left_children": [1, -1, -1], "x": [True]}]}},
            "learner_model_param": {"num_feature": str(features), "num_class": str(classes)},
            "objective": {"name": "multi:softprob"},
        },
        "version": [2, 0, 3],
    }


def lightgbm(features: int, classes: int = 1) -> str:
    return (
        f"tree\nversion=v4\nnum_class={classes}\nnum_tree_per_iteration={classes}\n"
        f"max_feature_idx={features - 1}\nobjective=multiclass num_class:{classes}\n"
        "\nTree=0\nnum_leaves=2\nmax_feature_idx=999\n"
    )
