"""YAML as nodes, which know their lines."""

from __future__ import annotations

import yaml

TAG_PREFIX = "tag:yaml.org,2002:"
_KINDS = {"seq": yaml.SequenceNode, "map": yaml.MappingNode}


def line_of(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def is_plain(node: yaml.Node, tag: str) -> bool:
    """True for a node of a type of YAML's own: ``str``, ``bool``, ``null``, ``seq`` or ``map``."""
    # A tag that is written out may stand before anything: `!!str [abs]`.
    kind = _KINDS.get(tag, yaml.ScalarNode)
    return bool(node.tag == f"{TAG_PREFIX}{tag}" and isinstance(node, kind))
