"""The part of JSON Schema that tests/deploy/schemas uses."""
import re

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def is_type(value, name):
    if name in ("integer", "number"):
        return isinstance(value, int if name == "integer" else (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def problems(value, schema, place=""):
    """Sentences about what of `value` is not as `schema` has it."""
    where = place or "the document"
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(is_type(value, name) for name in names):
        yield f"{where}: expected {' or '.join(names)}, got {value!r}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: expected one of {schema['enum']}, got {value!r}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield f"{where}: expected {schema['pattern']}, got {value!r}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{where}: expected at least {schema['minimum']}, got {value!r}"
    for word in ("anyOf", "oneOf"):
        tried = [list(problems(value, one, place)) for one in schema.get(word, [])]
        if tried and all(tried):
            yield min(tried, key=len)[0]
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from problems(one, schema.get("items", {}), f"{place}[{number}]")
    if isinstance(value, dict):
        yield from (f"{where}: the key {key} is missing" for key in schema.get("required", []) if key not in value)
        for key, one in value.items():
            yield from key_problems(key, one, schema, place)


def key_problems(key, value, schema, place):
    at = f"{place}.{key}" if place else str(key)
    if key in schema.get("properties", {}):
        yield from problems(value, schema["properties"][key], at)
        return
    for pattern, one in schema.get("patternProperties", {}).items():
        if re.search(pattern, key):
            yield from problems(value, one, at)
            return
    rest = schema.get("additionalProperties", True)
    if rest is False:
        yield f"{at}: no such key; known are {', '.join(sorted(schema.get('properties', {})))}"
    elif isinstance(rest, dict):
        yield from problems(value, rest, at)
