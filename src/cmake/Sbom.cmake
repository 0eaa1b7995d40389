# Writes the SBOM of a wheel (PEP 770) when the libraries are installed. A build without isolation may
# lack the package that writes it.

function(infini_ops_install_sbom)
  execute_process(COMMAND "${Python_EXECUTABLE}" -c "import cyclonedx, packageurl"
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  if(NOT status EQUAL 0)
    message(STATUS "No SBOM: ${Python_EXECUTABLE} has no cyclonedx. Run "
      "`python -m pip install cyclonedx-python-lib`.")
    return()
  endif()
  set(options "--version=${PROJECT_VERSION}" "--tool=cmake=${CMAKE_VERSION}"
    "--compiler=${CMAKE_CXX_COMPILER_ID}=${CMAKE_CXX_COMPILER_VERSION}")
  if(WITH_TORCH)
    list(APPEND options "--torch-root=${TORCH_ROOT}")
  endif()
  if(WITH_TRITON)
    execute_process(
      COMMAND "${TRITON_PYTHON_EXECUTABLE}" -c
        "import importlib.metadata as m; print(m.version('triton'), end='')"
      OUTPUT_VARIABLE version)
    list(APPEND options "--tool=triton=${version}")
  endif()
  if(WITH_CUDA_KERNELS)
    list(GET infini_ops_cuda_compiler 0 compiler)
    execute_process(COMMAND "${compiler}" --version OUTPUT_VARIABLE output)
    set(version "")
    if(output MATCHES "[Vv](ersion )?([0-9]+[.][0-9.]+)")
      set(version "${CMAKE_MATCH_2}")
    endif()
    cmake_path(GET compiler FILENAME name)
    list(APPEND options "--tool=${name}=${version}")
    if(name STREQUAL "nvcc")
      list(APPEND options "--part=cudart=${version}")  # the static runtime library
    endif()
  endif()
  list(JOIN options "\" \"" options)
  install(CODE "
    execute_process(
      COMMAND \"${Python_EXECUTABLE}\" \"${PROJECT_SOURCE_DIR}/src/packaging/sbom.py\"
        \"${SKBUILD_METADATA_DIR}/sboms/infini-ops.cdx.json\" \"${options}\"
        \"$<TARGET_FILE:infini_ops>\" \"$<TARGET_FILE:_core>\"
      COMMAND_ERROR_IS_FATAL ANY)")
endfunction()
