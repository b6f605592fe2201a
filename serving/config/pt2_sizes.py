"""Sizes of a compiled program's inputs that follow from other sizes, out of its C++ code.

The code reads some sizes, computes its symbols from them, and takes all others for granted: with
two inputs of one dynamic length it looks at the length of one, and would read beyond the other.
Pure; any thread.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from serving.config import syntax

_START, _END = "::run_impl(\n", "inputs.clear();"
_MOST = 4096
"""Symbols, and inputs: more are no program's."""
_TAKEN = re.compile(r"^[ \t]*auto (\w+) = std::move\(inputs\[(\d{1,6})\]\);", re.MULTILINE)
_SYMBOL = re.compile(r"^[ \t]*int64_t (\w+) = ([^;\n]{1,2000});", re.MULTILINE)
_USED = re.compile(
    r"assert_size_stride\((\w+), \{([^{}\n]{0,4000})\}, \{[^{}\n]{0,4000}\}, \"input\"\)"
)
_INTEGER = re.compile(r"\b(\d+)L+\b")
_SPELLED = {
    "static_cast<int64_t>": "",
    "c10::div_floor_integer": "floor_div",
    "c10::div_mod": "modulo",
    "std::max": "max",
    "std::min": "min",
}
_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTIONS: Mapping[str, Callable[[float, float], float]] = {
    "floor_div": operator.floordiv,
    "modulo": operator.mod,
    "max": max,
    "min": min,
}
_BROKEN = (SyntaxError, ValueError, RecursionError, MemoryError)
_Sizes = Mapping[str, float]
"""Values of symbols, and of `<argument>_size[<dimension>]`."""


@dataclass(frozen=True, slots=True)
class SizeRule:
    """What one size must be."""

    place: int
    """Number of the input."""
    dimension: int
    text: str
    expression: ast.expr


@dataclass(frozen=True, slots=True)
class SizeRules:
    read: tuple[tuple[str, int, int], ...] = ()
    """Sizes that the code looks at: how it names them, number of the input, dimension."""
    symbols: tuple[tuple[str, ast.expr], ...] = ()
    """In the order in which the code computes them."""
    rules: tuple[SizeRule, ...] = ()

    def refusal(self, shapes: Sequence[Sequence[int]]) -> tuple[int, str] | None:
        """`shapes`: of the inputs in their order, of the right ranks. The number of an input that
        does not fit the others, and why; None where all fit."""
        if not self.rules:
            return None  # which is nearly always so
        sizes: dict[str, float] = {name: shapes[item][dim] for name, item, dim in self.read}
        try:
            for name, expression in self.symbols:
                sizes[name] = int(_value(expression, sizes))
            for rule in self.rules:
                wanted, found = _value(rule.expression, sizes), shapes[rule.place][rule.dimension]
                if wanted != found:
                    is_plain = wanted == int(wanted)
                    shown = f"{rule.text}, {int(wanted)} here" if is_plain else rule.text
                    return rule.place, f"dimension {rule.dimension} must be {shown}"
        except (ArithmeticError, LookupError, RecursionError):
            return 0, "its sizes are none that the code was compiled for"
        return None


def read_size_rules(source: str) -> SizeRules | None:
    """None where the code does not tell which sizes follow from which."""
    _, _, rest = source.partition(_START)
    body, end, _ = rest.partition(_END)
    places = {name: int(number) for name, number in _TAKEN.findall(body)}
    written = dict(_SYMBOL.findall(body))
    used = [(name, text) for name, text in _USED.findall(source) if name in places]
    if not end or (places and not used) or max(len(written), len(used)) > _MOST:
        return None
    try:
        symbols = {name: _parsed(text) for name, text in written.items()}
        read = _read_sizes([*symbols.values()], places)
        rules = [
            SizeRule(places[name], dimension, ast.unparse(expression), expression)
            for name, text in used
            for dimension, expression in enumerate(_listed(text))
            if not _is_itself(expression, f"{name}_size[{dimension}]", symbols)
        ]
    except _BROKEN:
        return None
    return SizeRules(read, tuple(symbols.items()), tuple(rules))


def _is_itself(expression: ast.expr, size: str, symbols: Mapping[str, ast.expr]) -> bool:
    """No more is said than that the size is what it is; or it is a number, which is checked with
    the types."""
    if isinstance(expression, ast.Name):
        expression = symbols.get(expression.id, expression)
    return isinstance(expression, ast.Constant) or ast.unparse(expression) == size


def _read_sizes(
    expressions: Sequence[ast.expr], places: Mapping[str, int]
) -> tuple[tuple[str, int, int], ...]:
    """Raises: ValueError for what is the size of no input."""
    found = []
    for expression in expressions:
        for node in ast.walk(expression):
            if isinstance(node, ast.Subscript):
                name, dimension = _size_of(node)
                if name not in places:
                    raise ValueError(f"{name} is no input")
                found.append((ast.unparse(node), places[name], dimension))
    return tuple(dict.fromkeys(found))


def _size_of(node: ast.Subscript) -> tuple[str, int]:
    """Of `arg0_1_size[0]` the argument and the dimension."""
    is_size = isinstance(node.value, ast.Name) and node.value.id.endswith("_size")
    if not is_size or not isinstance(node.slice, ast.Constant) or type(node.slice.value) is not int:
        raise ValueError("not a size")
    assert isinstance(node.value, ast.Name)
    return node.value.id.removesuffix("_size"), node.slice.value


def _parsed(text: str) -> ast.expr:
    """Raises: ValueError, SyntaxError for what is no arithmetic."""
    for there, here in _SPELLED.items():
        text = text.replace(there, here)
    statement = syntax.parse(_INTEGER.sub(r"\1", text).strip()).body
    if len(statement) != 1 or not isinstance(statement[0], ast.Expr):
        raise ValueError("not an expression")
    for node in ast.walk(statement[0]):
        if isinstance(node, ast.BinOp) and type(node.op) not in _OPERATORS:
            raise ValueError("unknown operator")
        if isinstance(node, ast.Call) and not _is_known(node):
            raise ValueError("unknown function")
    return statement[0].value


def _listed(text: str) -> list[ast.expr]:
    tree = _parsed(f"[{text}]")
    if not isinstance(tree, ast.List):
        raise ValueError("not a list")
    return tree.elts


def _is_known(node: ast.Call) -> bool:
    is_named = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
    return is_named and len(node.args) == 2 and not node.keywords


def _value(node: ast.expr, sizes: _Sizes) -> float:
    """Raises: ArithmeticError, KeyError."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.Subscript):
        return sizes[ast.unparse(node)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, sizes)
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, sizes), _value(node.right, sizes))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        first, second = node.args
        return _FUNCTIONS[node.func.id](_value(first, sizes), _value(second, sizes))
    raise KeyError("unknown expression")
