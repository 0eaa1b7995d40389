# If WITH_TRITON is ON, compiles the kernels of src/triton ahead of time. The library then contains
# machine code and C launchers. Linking and loading it needs no Triton, no Python and no GPU.

set(TRITON_PYTHON_EXECUTABLE "${Python_EXECUTABLE}" CACHE FILEPATH "The Python that has Triton")
set(TRITON_TARGETS "80;90" CACHE STRING "Compute capabilities to compile Triton's kernels for")

if(WITH_TRITON AND NOT INFINI_OPS_ACCELERATOR STREQUAL "kNvidia")
  string(REGEX REPLACE "^k" "" name "${INFINI_OPS_ACCELERATOR}")
  string(TOUPPER "${name}" name)
  if(name)
    set(got "WITH_${name}")
    set(remedy "Set WITH_NVIDIA to ON and WITH_${name} to OFF")
  else()
    set(got "no accelerator")
    set(remedy "Set WITH_NVIDIA to ON")
  endif()
  message(FATAL_ERROR
    "WITH_TRITON is ON, but its kernels are for NVIDIA's devices alone, got ${got}. "
    "${remedy}, or set WITH_TRITON to OFF.")
endif()
if(WITH_TRITON)
  enable_language(C)  # for the launchers; other builds need no C compiler
endif()

# Updates the sources generated from src/triton/ops, in the folder `output`, without the operators
# in `unselected`.
function(infini_ops_generate_triton output unselected)
  list(JOIN TRITON_TARGETS "," targets)
  set(without "")
  foreach(name IN LISTS unselected)
    # Not a shared source, of which Python knows nothing.
    if(EXISTS "${PROJECT_SOURCE_DIR}/src/base/${name}.h")
      list(APPEND without "${name}")
    endif()
  endforeach()
  list(JOIN without "," without)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -m codegen triton --output-dir "${output}"
      --targets "${targets}" --without "${without}" --python "${TRITON_PYTHON_EXECUTABLE}"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    ERROR_VARIABLE error RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    string(STRIP "${error}" error)
    string(REPLACE "\n" "\n  " error "${error}")  # CMake does not reflow indented lines
    message(FATAL_ERROR "WITH_TRITON is ON, but its kernels can't be compiled. ${error}")
  endif()
  if(error)
    message(STATUS "${error}")
  endif()
  file(GLOB_RECURSE inputs CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/src/triton/ops/*.py" "${PROJECT_SOURCE_DIR}/codegen/triton/*.py"
    "${PROJECT_SOURCE_DIR}/codegen/templates/triton/*.j2")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${inputs})
endfunction()

# Adds the driver, the launchers and the glue code of each operator to the target.
function(infini_ops_add_triton_sources target output unselected)
  file(GLOB glue CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/triton/ops/*/*.cc")
  infini_ops_leave_out(glue "${unselected}")
  set(launchers "")
  foreach(source IN LISTS glue)
    cmake_path(GET source STEM name)
    list(APPEND launchers "${output}/triton/${name}.c")
  endforeach()
  # They only compare, pack and call. More optimization makes compiling a third slower without any
  # speedup.
  set_source_files_properties(${launchers} PROPERTIES COMPILE_OPTIONS -O1)
  find_package(Threads REQUIRED)
  target_sources(${target} PRIVATE triton/driver.c ${glue} ${launchers})
  target_include_directories(${target} PRIVATE "${output}")
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES
    C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden)
endfunction()
