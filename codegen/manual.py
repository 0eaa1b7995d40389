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

REGISTRY = """
Reads from the sources of a build which hand-written implementation is at which slot:
INFINI_OPS_REGISTER(<Op>, Device::Type::k<Platform> or cuda::kDevice, <slot>). CMake runs it when it
configures. All that can't be is reported at once, by line, with exit code 2: two implementations of
one (operator, device, slot); a slot that is not the source's (0 to 7, and 9 below src/triton); an
operator that src/base does not declare. #if is not evaluated.

Writes native_ops_metadata.json, schema_version 1, which is installed beside the module
(infini.ops.native_metadata_path()):

  schema_version
  not_selected: a list of name, device and slot; what INFINI_OPS_TORCH_OPS left out of the build
  ops: a list of
    name            public name: infini.ops.<name>
    overload_name   ATen's name for this overload, where torch has the operator too
    params          as in torch_ops_metadata.json: name, type, is_tensor, is_out, default
    implementations: a list of
      device        platform: cpu, nvidia
      slot          implementation index
      source        file, relative to the repository
"""

TRITON = """
Compiles the kernels of src/triton/ops/<op>/kernel.py in each of the variants of build.py, and for
each target. CMake runs it when it configures with WITH_TRITON. No GPU is needed.

Writes for each operator triton/<op>.h, the C interface of its dispatcher, and triton/<op>.c, the
dispatcher with launchers and machine code; triton/targets.h; and triton/kernels.json: the
conditions, parameters and resources of each kernel.

Compiled kernels are kept, by the digest of all that they depend on, in ~/.cache/infini-ops/triton
or the folder that INFINI_OPS_TRITON_CACHE names; so does a dry run, which has to compile them, too.
"""

BACKEND_STUBS = """
Generates what a device backend outside of torch needs from its YAML file, as
torchgen.gen_backend_stubs does:

  <Backend>NativeFunctions.h         declares the kernels, for you to define
  Register<Backend>.cpp              registers them, and out=, in-place and functional variants
                                     made from them
  RegisterAutograd<Backend>.cpp      only with autograd: the same for Autograd<Backend>
  Register<Backend>Fallback.cpp      runs all other operators on the CPU
  coverage.md, coverage.json         who computes which operator, what is missing, and why
  manifest.json                      what is generated here; other files are left alone

The keys of the YAML file:

  backend            dispatch key: PrivateUse1
  cpp_namespace      of the kernels: torch_npu
  class_name         of the kernels; <Backend>NativeFunctions by default
  extra_headers      list: what the generated header includes
  supported          list of operators that have a kernel, with their overloads: add.Tensor
  autograd           list of operators that have one for Autograd<Backend>: forward and backward
  symint             list: those of them whose kernels take SymInt, and are called <name>_symint
  use_out_as_primary, device_guard   true or false, which is the default
  full_codegen       list; the same as supported
  ir_gen, non_native                 for torchgen's lazy tensors; not used

All that is wrong with the file is reported at once, by line, with exit code 2; nothing is written
then. With --impl-path, kernels that are declared but not defined, or defined with another
signature, are such errors too.
"""


def counted(count: int, noun: str) -> str:
    """``1 operator``, ``2 operators``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
