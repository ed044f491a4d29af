"""Named tuples of what msgpack has unpacked, made what their types say.

msgpack knows one kind of sequence and gives a list for each. A field that is said to hold tuples gets tuples, and named tuples get their
class; whatever else is handed on as it came. So a frame or a row that was packed is the same when it is unpacked, and one in which a
tuple has another length is refused where it comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

N = TypeVar("N", bound=NamedTuple)

Shape = Callable[[Any], Any]


def maker(kind: type[N]) -> Callable[[Sequence[Any]], N]:
    """Makes one of its fields, of which the last ones may be missing if they have defaults. It raises TypeError for a wrong number of them,
    and TypeError or ValueError where one has another shape than its type."""
    hints = get_type_hints(kind)
    shapes = [(at, shape) for at, name in enumerate(kind._fields) if (shape := _shape_of(hints[name])) is not None]

    def plain(fields: Sequence[Any]) -> N:
        return kind(*fields)

    def shaped(fields: Sequence[Any]) -> N:
        made = list(fields)
        for at, shape in shapes:
            if at < len(made):
                made[at] = shape(made[at])
        return kind(*made)

    return shaped if shapes else plain


def _shape_of(hint: Any) -> Shape | None:
    """What makes of an unpacked value one of this type; None: it is one."""
    arguments = get_args(hint)
    match get_origin(hint):
        case None:
            return maker(hint) if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields") else None
        case origin if origin is tuple:
            return _each_of(arguments[0], tuple) if arguments[-1] is Ellipsis else _tuple_of(arguments)
        case origin if origin in (list, Sequence):
            return _many_tuples_of(get_args(arguments[0])) if _is_plain_tuple(arguments[0]) else _list_of(arguments[0])
        case origin if origin in (Union, UnionType) and NoneType in arguments and len(arguments) == 2:
            shape = _shape_of(next(each for each in arguments if each is not NoneType))
            return None if shape is None else lambda value: None if value is None else shape(value)
    return None


def _each_of(hint: Any, whole: Callable[[Any], Any]) -> Shape:
    shape = _shape_of(hint)
    return whole if shape is None else lambda values: whole(map(shape, values))


def _list_of(hint: Any) -> Shape | None:
    return None if _shape_of(hint) is None else _each_of(hint, list)


def _is_plain_tuple(hint: Any) -> bool:
    """Of fixed length, with nothing in it that has a shape itself."""
    arguments = get_args(hint)
    return get_origin(hint) is tuple and Ellipsis not in arguments and not any(map(_shape_of, arguments))


def _many_tuples_of(hints: Sequence[Any]) -> Shape:
    """A list of tuples of one length, which is what messages come in: looked at together, not one by one."""
    wanted = len(hints)

    def shape(values: Sequence[Any]) -> list[Any]:
        found = list(map(tuple, values))
        if others := set(map(len, found)) - {wanted}:
            raise ValueError(f"tuples of {wanted} were wanted, one of {min(others)} found")
        return found

    return shape


def _tuple_of(hints: Sequence[Any]) -> Shape:
    shapes = [_shape_of(hint) for hint in hints]

    def shape(values: Sequence[Any]) -> tuple[Any, ...]:
        if len(values) != len(shapes):
            raise ValueError(f"a tuple of {len(shapes)} was wanted, one of {len(values)} found")
        return tuple([value if of is None else of(value) for of, value in zip(shapes, values, strict=True)])

    return shape
