# Finds the torch to build the PyTorch backend against. Sets TORCH_ROOT to the site-packages folder
# that contains it, or to an empty string.
#
# Python is asked for torch, instead of find_package(Torch): torch's own CMake files look for CUDA,
# MKL and Kineto, and take longer than compiling the backend. An isolated pip build runs with a
# Python that hides the packages of the environment it installs into. With `-E`, the same
# interpreter ignores the variables that hide them, including those of `pip install --user`.

set(TORCH_PYTHON_EXECUTABLE "${Python_EXECUTABLE}" CACHE FILEPATH "The Python that has torch")

set(find_torch [=[
import importlib.util, pathlib
spec = importlib.util.find_spec("torch")
has_headers = spec and spec.origin and (pathlib.Path(spec.origin).parent / "include/ATen").is_dir()
print(pathlib.Path(spec.origin).parents[1] if has_headers else "", end="")
]=])

set(TORCH_ROOT "")
if(WITH_TORCH OR (AUTO_DETECT_BACKENDS AND NOT DEFINED WITH_TORCH))
  foreach(flags "" "-E")
    if(NOT TORCH_ROOT)
      execute_process(
        COMMAND "${TORCH_PYTHON_EXECUTABLE}" ${flags} -c "${find_torch}"
        OUTPUT_VARIABLE TORCH_ROOT ERROR_VARIABLE error RESULT_VARIABLE status)
      if(NOT status EQUAL 0)
        message(FATAL_ERROR "${TORCH_PYTHON_EXECUTABLE} can't look for torch: ${error}. "
          "Set TORCH_PYTHON_EXECUTABLE to a working Python.")
      endif()
    endif()
  endforeach()
endif()

if(WITH_TORCH AND NOT TORCH_ROOT)
  message(FATAL_ERROR
    "WITH_TORCH is ON, but ${TORCH_PYTHON_EXECUTABLE} has no torch. Install torch there, set "
    "TORCH_PYTHON_EXECUTABLE to a Python that has it, or set WITH_TORCH to OFF.")
endif()
if(TORCH_ROOT AND NOT WITH_TORCH)
  message(STATUS "Found torch in ${TORCH_ROOT}: enabling WITH_TORCH")
  set(WITH_TORCH ON)
endif()

# Runs the generator, which writes only the files that changed.
function(infini_ops_generate_torch output registry)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -m codegen torch
      --output-dir "${output}" --torch-root "${TORCH_ROOT}" --registry "${registry}"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "The generator failed; its message is above.")
  endif()
  # If all selected operators are hand-written, no headers are generated.
  file(MAKE_DIRECTORY "${output}/base")
  # Runs again if one of the generator's inputs changes. A change of only the variable has no
  # effect: ninja can't detect it. pip configures at every build, so it does not need this.
  file(GLOB_RECURSE inputs CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/codegen/*.py" "${PROJECT_SOURCE_DIR}/codegen/*.j2")
  list(APPEND inputs "${PROJECT_SOURCE_DIR}/codegen/torch_ops.yaml"
    "${TORCH_ROOT}/torch/version.py"
    "${TORCH_ROOT}/torchgen/packaged/ATen/native/native_functions.yaml")
  set(narrowing "$ENV{INFINI_OPS_TORCH_OPS}")
  if(narrowing MATCHES "\\.ya?ml$")
    cmake_path(ABSOLUTE_PATH narrowing BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    list(APPEND inputs "${narrowing}")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${inputs})
endfunction()

# Interface target with the headers, libraries, ABI and C++ standard of the selected torch.
function(infini_ops_add_torch_target)
  set(root "${TORCH_ROOT}/torch")
  add_library(infini_ops_torch INTERFACE)
  target_include_directories(infini_ops_torch SYSTEM INTERFACE "${root}/include"
    "${root}/include/torch/csrc/api/include")
  target_link_libraries(infini_ops_torch INTERFACE
    "${root}/lib/libtorch_cpu.so" "${root}/lib/libc10.so")
  # Messages of torch's headers have their paths.
  target_compile_options(infini_ops_torch INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${TORCH_ROOT}/=>")
  # Wheels before torch 2.7 use the ABI from before C++11.
  file(STRINGS "${root}/share/cmake/Torch/TorchConfig.cmake" abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
  if(abi)
    target_compile_definitions(infini_ops_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=0)
  endif()
  # torch 2.14 and later need C++20. TorchConfig.cmake already requires it in 2.13, without need.
  file(STRINGS "${root}/include/torch/csrc/api/include/torch/all.h" standard
    REGEX "__cplusplus < 202002L")
  if(standard)
    target_compile_features(infini_ops_torch INTERFACE cxx_std_20)
  endif()
endfunction()
