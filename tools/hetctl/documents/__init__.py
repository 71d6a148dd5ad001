"""The JSON documents of `hetctl --json`: their types, and the schemas generated from them.

Commands return plain dictionaries that the type checker compares with these types;
`hetctl doc --schema NAME` prints the JSON Schema of a document, and `docs/schemas` contains
them all. Keys may be added. Removing a key, or changing its meaning, takes a new number in
`format`.
"""
