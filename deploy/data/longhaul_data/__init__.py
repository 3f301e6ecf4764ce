"""Data sets: token shards with a manifest, made of texts or of token files (docs/design/data_sets.md)."""
