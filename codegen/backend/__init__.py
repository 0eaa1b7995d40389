"""Generates the C++ files of a device backend outside of torch from its YAML file, as
torchgen.gen_backend_stubs does:

  <Backend>NativeFunctions.h         declares the kernels, for you to define
  Register<Backend>.cpp              registers the kernels, and generated out=, in-place and
                                     functional variants of them
  RegisterAutograd<Backend>.cpp      only with autograd: the same for Autograd<Backend>
  Register<Backend>Fallback.cpp      runs all other operators on the CPU
  Register<Backend>Runtime.cpp       only with device: operators for the Python package
  python/                            only with device: the Python package of the device, which adds
                                     it to torch; compile.py has what torch.compile needs
  coverage.md, coverage.json         how each operator is computed, which are missing, and why
  manifest.json                      the list of generated files; other files are left alone

The keys of the YAML file:

  backend            dispatch key: PrivateUse1
  cpp_namespace      C++ namespace of the kernels: torch_npu
  class_name         C++ class of the kernels; default: <Backend>NativeFunctions
  extra_headers      list of headers that the generated header includes
  supported          list of operators with a kernel, with their overload names: add.Tensor
  autograd           list of operators with a kernel (forward and backward) for Autograd<Backend>
  symint             list of operators above whose kernels take SymInt; their C++ functions are
                     called <name>_symint
  device             name of the device in Python: acme, for device="acme". It adds the package, and
                     Register<Backend>Runtime.cpp
  use_out_as_primary, device_guard   true or false; default: false
  custom             list of schemas that torch does not have: my_op(Tensor self) -> Tensor. They
                     are defined in the namespace that they name (npu::my_op), or in the first part
                     of cpp_namespace
  custom_autograd    the same, for kernels for Autograd<Backend>
  full_codegen       list; the same as supported
  ir_gen, non_native                 for torchgen's lazy tensors; not used

An entry of supported, autograd, custom or custom_autograd is a name or a mapping:

  func               name, or the schema of a custom operator
  dispatch           C++ functions by dispatch key: PrivateUse1: my_abs, SparsePrivateUse1: abs_sp
  device_guard       true or false, instead of that of the file
  device_check       NoCheck: arguments may be on several devices

--dialect chooses the form of the file. Those of existing backends have lists and options of their
own; entries that this torch does not know are skipped there, with a note.

All errors in the file are reported at once, by line, with exit code 2; no file is written then.
With --impl-path, declared kernels that are not defined, or that are defined with another signature,
are errors too. The C++ compiler of CXX or PATH judges them, with the options in CPPFLAGS and
CXXFLAGS; files that did not change are not compiled again. A file that can't be compiled, or all
files if CXX is empty, are judged by their text; a note says so.
"""

# The forms of the file. `codegen.backend.dialects` has the readers, and imports PyYAML.
DIALECT_NAMES = ("torchgen", "openreg", "npu", "op-plugin", "mlu", "musa", "xla", "xpu", "auto")
