"""Words of the command line: help texts, which must not import what they describe."""

INSPECT = """
Shows, for every out= and in-place overload whose ATen base name or public name matches
PATTERN (a name, or a pattern such as 'fft_*'; everything by default), its schema, what each
argument becomes, torchgen's tags, and whether it is generated or why not.

The JSON form, schema_version 1:

  schema_version, torch_version, pattern
  operators: a list of
    name            public name: infini.ops.<name>
    class_name      infini.ops.<class_name>, and in C++ infini::ops::<class_name>
    aten_name       ATen base name
    overloads: a list of
      overload_name   ATen's; "" for the one without
      schema          as torchgen prints it
      line            of native_functions.yaml; of the operator it is derived from, if generated
      tags            torchgen's, sorted
      generated       true or false
      reason          null, or one of a fixed vocabulary, as in torch_ops_metadata.json
      explanation     null, or in more words: who left it out, and why
      arguments: a list of
        name            in Python and C++
        aten_name       in the schema
        type            in the schema, without alias annotation
        kind            Tensor, Scalar, Int, Float, Bool, String, DataType, Layout,
                        MemoryFormat, Device or Generator: the type of one element; null for a
                        type that can't be passed
        list_size       null: no list; 0: a list of any size
        is_optional, has_optional_elements, is_out, keyword_only   true or false
        default         null, or the schema's text
"""


def counted(count: int, noun: str) -> str:
    """``1 operator``, ``2 operators``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
