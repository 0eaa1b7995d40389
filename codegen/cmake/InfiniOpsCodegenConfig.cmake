# find_package(InfiniOpsCodegen): generates the code of a device outside of torch, in any project.
#
#   infini_ops_generate_backend(TARGET YAML FILE [IMPL PATH] [OUTPUT_DIR DIR] [OPTIONS OPTION...])
#
# Runs `python -m infini.codegen backend-stubs` when the project is configured, and adds to TARGET the
# generated sources, the folder of the generated header, and torch's headers and libraries. The
# project is configured again if one of the files changes. PATH has the kernels that the generator
# compares with FILE. DIR, by default `generated` in the current binary folder, also gets coverage.md
# and coverage.json.
#
# Variables: Python_EXECUTABLE, which runs the generator, TORCH_PYTHON_EXECUTABLE, which has torch,
# and TORCH_ROOT, the site-packages folder that contains it. Target: infini_ops_torch, torch's
# headers, libraries, ABI and C++ standard.

if(CMAKE_VERSION VERSION_LESS 3.20)
  set(InfiniOpsCodegen_FOUND FALSE)
  set(InfiniOpsCodegen_NOT_FOUND_MESSAGE
    "This is CMake ${CMAKE_VERSION}; expected 3.20 or later. Run `python -m pip install -U cmake`.")
  return()
endif()
# The repository, or the part of it that an installation has.
cmake_path(SET INFINI_OPS_CODEGEN_ROOT NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../..")

if(NOT Python_EXECUTABLE)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
endif()
set(WITH_TORCH ON)
include("${INFINI_OPS_CODEGEN_ROOT}/src/cmake/Torch.cmake")
if(NOT TARGET infini_ops_torch)
  infini_ops_add_torch_target()
endif()

function(infini_ops_generate_backend target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "YAML;IMPL;OUTPUT_DIR" "OPTIONS")
  if(NOT TARGET "${target}" OR NOT ARG_YAML OR ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR
      "infini_ops_generate_backend: got '${ARGV}'; expected a target that exists, then YAML FILE "
      "[IMPL PATH] [OUTPUT_DIR DIR] [OPTIONS OPTION...].")
  endif()
  cmake_path(ABSOLUTE_PATH ARG_YAML NORMALIZE)
  set(output "${CMAKE_CURRENT_BINARY_DIR}/generated")
  if(ARG_OUTPUT_DIR)
    cmake_path(ABSOLUTE_PATH ARG_OUTPUT_DIR BASE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}" NORMALIZE
      OUTPUT_VARIABLE output)
  endif()
  set(inputs "${ARG_YAML}" "${TORCH_ROOT}/torch/version.py"
    "${TORCH_ROOT}/torchgen/packaged/ATen/native/native_functions.yaml")
  if(ARG_IMPL)
    cmake_path(ABSOLUTE_PATH ARG_IMPL NORMALIZE)
    list(APPEND ARG_OPTIONS --impl-path "${ARG_IMPL}")
    if(IS_DIRECTORY "${ARG_IMPL}")
      file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${ARG_IMPL}/*.c*" "${ARG_IMPL}/*.h*")
      list(APPEND inputs ${sources})
    else()
      list(APPEND inputs "${ARG_IMPL}")
    endif()
  endif()
  execute_process(
    # Without CXX, text alone compares the kernels: the build compiles the same files.
    COMMAND "${CMAKE_COMMAND}" -E env CXX= "${Python_EXECUTABLE}" -m codegen backend-stubs --source-yaml "${ARG_YAML}"
      --output-dir "${output}" --torch-root "${TORCH_ROOT}" ${ARG_OPTIONS}
    WORKING_DIRECTORY "${INFINI_OPS_CODEGEN_ROOT}"
    RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "The generator failed; its message is above.")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${inputs})

  file(GLOB generated "${output}/*.cpp")
  target_sources(${target} PRIVATE ${generated})
  target_include_directories(${target} PRIVATE "${output}")
  target_link_libraries(${target} PRIVATE infini_ops_torch)
  # The helpers of each dispatch key have the same names: one translation unit each.
  list(FILTER generated INCLUDE REGEX "/RegisterAutograd[^/]*$")
  foreach(source IN LISTS generated)
    get_source_file_property(group "${source}" UNITY_GROUP)
    if(NOT group)
      set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()
