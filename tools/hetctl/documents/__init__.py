"""The JSON documents of `hetctl --json`: their types, and the schemas made of them.

Commands write plain dictionaries that are checked against these types; `hetctl doc
--schema NAME` prints the JSON Schema of one, `docs/schemas` holds them all. A key may be
added; none is taken away or changes its meaning before the number in `format` changes.
"""
