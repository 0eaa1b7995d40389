"""Generates what a device backend outside of torch needs from its YAML file, as
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
