"""Shows what PATTERN names: what it is, whether it is generated or why not, and for operators
of infini.ops their slots, platforms and recorded test outcomes. By default it shows every out=
and in-place overload of torch, with the kind of each argument and torchgen's tags.

PATTERN is a name as people write it: add, add.Tensor, aten::add.out, torch.ops.aten.mm.default,
torch.nn.functional.conv2d, F.conv2d, Tensor.add_, __iadd__, infini.ops.add, CausalSoftmax,
at::_ops::add_out, the C++ name of a kernel, or an operator that torch has removed. It can also
be a pattern of ATen and public names, such as 'fft_*'.

The JSON form, schema_version 1:

  schema_version, torch_version, pattern
  operators: a list of
    name            public name: infini.ops.<name>
    class_name      infini.ops.<class_name>, and in C++ infini::ops::<class_name>
    aten_name       ATen base name
    overloads: a list of
      overload_name   ATen's overload name; "" for the overload without a name
      schema          as torchgen prints it
      line            line in native_functions.yaml, of the base operator if derived by torchgen
      tags            torchgen's tags, sorted
      generated       true or false
      reason          null, or a value of a fixed list, as in torch_ops_metadata.json
      explanation     null, or the reason in detail, with the file that excludes it
      arguments: a list of
        name            in Python and C++
        aten_name       in the schema
        type            in the schema, without alias annotation
        kind            Tensor, Scalar, Int, Float, Bool, String, DataType, Layout,
                        MemoryFormat, Device or Generator: the type of one element; null for a
                        type that can't be passed
        list_size       null: no list; 0: a list of any size
        is_optional, has_optional_elements, is_out, keyword_only   true or false
        default         null, or the default's text in the schema
    slots: null if all operators are listed or outside of a checkout, or a list of
      slot            implementation index
      devices         platforms
      source          file of a hand-written implementation; null for a generated one
    tests: null as for slots, or a list of outcomes in tests/*/contracts:
      platform, slot
      simulated       true: no device of the platform was used
      overload        ATen's overload, or the name of a hand-written operator
      outcomes        dtypes by outcome: passed, or a skip reason
  functions: a list of the named functions that are neither out= nor in-place
    name            with the overload name
    schema, line, tags   as above
    kind            torchgen's: functional, mutable
    is_view, is_composite   true or false
    kernels         C++ function by dispatch key
    calls           null, or what a composite calls on the CPU, recorded with torch 2.13
    see             the out= and in-place functions of the same signature
    reason          functional, view, mutable, no tensor, no out or composite
    explanation     the reason in detail
  hand_written: a list of the named operators that torch has not
    name, class_name, schema, arguments, slots, tests   as above
  removed           null, or an object: the name, its successor, and the source of both
"""
