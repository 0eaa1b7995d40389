# Decides whether the kernels in src/cuda are compiled, and with which compiler. Sets
# WITH_CUDA_KERNELS. If it is ON, also sets infini_ops_cuda_compiler, _flags, _vendor (a folder of
# src/cuda/vendor), _libraries and _library_folders (for the rpath).
#
# Each source is compiled by a custom command, not by enable_language(CUDA). Of the four vendors'
# compilers, CMake supports only nvcc. It also does not support the toolkit of NVIDIA's wheels,
# whose libraries are not where its nvcc looks for them (and needs 2 seconds to find that out).

# As for CMake's own languages, the environment is read only once: Ninja reconfigures without it.
set(CMAKE_CUDA_COMPILER "$ENV{CUDACXX}" CACHE FILEPATH
  "NVIDIA's compiler; empty: use the first complete toolkit that is found")
set(CMAKE_CUDA_ARCHITECTURES "$ENV{CUDAARCHS}" CACHE STRING
  "NVIDIA architectures to compile kernels for; empty: 80-real;90")
set(CUDA_KERNEL_FLAGS "" CACHE STRING "Additional options for the compiler of the kernels")

# Reports the missing parts of the toolkit of this nvcc ("" if complete), its folder and its
# libraries.
function(infini_ops_inspect_toolkit nvcc)
  file(WRITE "${PROJECT_BINARY_DIR}/empty.cu" "")
  # nvcc can be a wrapper in another folder, so ask it where its toolkit is.
  execute_process(
    COMMAND "${nvcc}" -v --dryrun "${PROJECT_BINARY_DIR}/empty.cu"
    ERROR_VARIABLE nvcc_output OUTPUT_QUIET)
  set(toolkit_lacks "a working nvcc" PARENT_SCOPE)
  if(NOT nvcc_output MATCHES "TOP=([^\r\n]+)")
    return()
  endif()
  cmake_path(SET root NORMALIZE "${CMAKE_MATCH_1}")
  set(lacks "")
  foreach(header cuda_runtime.h cublas_v2.h cublasLt.h)
    if(NOT EXISTS "${root}/include/${header}")
      list(APPEND lacks "${header}")
    endif()
  endforeach()
  set(libraries "")
  foreach(name cudart_static cublas cublasLt)
    # NVIDIA's wheels contain no libcublas.so, only libcublas.so.13.
    find_library(found NO_CACHE NO_DEFAULT_PATH
      NAMES ${name} lib${name}.so.13 lib${name}.so.12
      PATHS "${root}" PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib)
    list(APPEND libraries "${found}")
    if(NOT found)
      list(APPEND lacks "lib${name}")
    endif()
    cmake_path(GET found PARENT_PATH folder)
    unset(found)
  endforeach()
  set(toolkit_blas_folder "${folder}" PARENT_SCOPE)
  list(JOIN lacks ", " lacks)
  set(toolkit_lacks "${lacks}" PARENT_SCOPE)
  set(toolkit_libraries "${libraries}" PARENT_SCOPE)
endfunction()

# All nvcc on this machine, in order of preference.
function(infini_ops_find_nvcc result)
  if(CMAKE_CUDA_COMPILER)
    set(${result} "${CMAKE_CUDA_COMPILER}" PARENT_SCOPE)
    return()
  endif()
  find_program(found nvcc NO_CACHE
    HINTS "${CUDAToolkit_ROOT}" ENV CUDAToolkit_ROOT ENV CUDA_HOME
    PATHS /usr/local/cuda PATH_SUFFIXES bin)
  # The newest toolkit among NVIDIA's wheels. Torch.cmake explains `-E`.
  set(find_wheels [=[
import importlib.util, pathlib
spec = importlib.util.find_spec("nvidia")
folders = spec.submodule_search_locations if spec else []
found = [path for folder in folders for path in pathlib.Path(folder).glob("cu*/bin/nvcc")]
print(*sorted(found, reverse=True)[:1], end="")
]=])
  foreach(flags "" "-E")
    execute_process(COMMAND "${Python_EXECUTABLE}" ${flags} -c "${find_wheels}"
      OUTPUT_VARIABLE in_wheels)
    list(APPEND found "${in_wheels}")
  endforeach()
  list(FILTER found INCLUDE REGEX "/nvcc$")
  list(REMOVE_DUPLICATES found)
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# The compiler options for the architectures, which have CMake's syntax: 80-real is machine code for
# one chip, 90-virtual is PTX, which later chips can use, and 90 is both.
function(infini_ops_nvcc_architectures result)
  set(options "")
  set(architectures "${CMAKE_CUDA_ARCHITECTURES}")
  if(NOT architectures)
    set(architectures 80-real 90)
  endif()
  foreach(architecture IN LISTS architectures)
    if(NOT architecture MATCHES "^([0-9]+[af]?)(-real|-virtual)?$")
      message(FATAL_ERROR
        "CMAKE_CUDA_ARCHITECTURES has '${architecture}'. Name each architecture by its number, "
        "optionally followed by -real or -virtual, such as 80-real;90.")
    endif()
    set(number ${CMAKE_MATCH_1})
    if(NOT CMAKE_MATCH_2 STREQUAL "-virtual")
      list(APPEND options "--generate-code=arch=compute_${number},code=sm_${number}")
    endif()
    if(NOT CMAKE_MATCH_2 STREQUAL "-real")
      list(APPEND options "--generate-code=arch=compute_${number},code=compute_${number}")
    endif()
  endforeach()
  set(${result} "${options}" PARENT_SCOPE)
endfunction()

# Sets infini_ops_cuda_problem if there is no complete toolkit.
macro(infini_ops_use_nvidia)
  infini_ops_find_nvcc(nvcc_candidates)
  set(infini_ops_cuda_problem "no nvcc was found")
  foreach(nvcc IN LISTS nvcc_candidates)
    infini_ops_inspect_toolkit("${nvcc}")
    if(toolkit_lacks STREQUAL "")
      set(infini_ops_cuda_problem "")
      set(infini_ops_cuda_compiler "${nvcc}" "-ccbin=${CMAKE_CXX_COMPILER}")
      break()
    endif()
    set(infini_ops_cuda_problem "the toolkit of ${nvcc} lacks ${toolkit_lacks}")
  endforeach()
  if(CMAKE_CUDA_COMPILER)
    set(infini_ops_cuda_remedy
      "Set CMAKE_CUDA_COMPILER, or CUDACXX in the environment, to the nvcc of a complete toolkit, or "
      "to an empty string to search for one")
  else()
    set(infini_ops_cuda_remedy
      "Run `pip install 'cuda-toolkit[cccl,nvcc,cudart,cublas]'`, or set CUDACXX in the environment "
      "to the nvcc of a complete toolkit")
  endif()
  if(infini_ops_cuda_problem)
    unset(CMAKE_CUDA_COMPILER CACHE)  # do not cache a compiler that does not work
  endif()
  infini_ops_nvcc_architectures(architectures)
  set(infini_ops_cuda_vendor nvidia)
  set(infini_ops_cuda_flags ${architectures}
    -Xcompiler=-fPIC,-fvisibility=hidden,-fvisibility-inlines-hidden,-Wall,-Wextra)
  # The static runtime library: torch loads its own, possibly of another version. Both use the same
  # devices and streams through the driver.
  set(infini_ops_cuda_libraries ${toolkit_libraries} ${CMAKE_DL_LIBS} rt pthread)
  # cuBLAS is in the wheels of CUDA 13 and 12, beside this package in site-packages; torch loads it
  # from there too. Otherwise it is in the toolkit.
  set(infini_ops_cuda_library_folders
    "$ORIGIN/../../nvidia/cu13/lib" "$ORIGIN/../../nvidia/cublas/lib")
  if(NOT toolkit_blas_folder MATCHES "/nvidia/cu[0-9]+/lib$")
    list(APPEND infini_ops_cuda_library_folders "${toolkit_blas_folder}")
  endif()
endmacro()

# The other vendors' compilers are clang, which has CUDA as the language `language`. This code has
# never been run, because no SDK was available.
macro(infini_ops_use_clang vendor sdk compiler language)
  set(infini_ops_cuda_vendor ${vendor})
  set(root "$ENV{${sdk}}")
  set(infini_ops_cuda_compiler "${root}/${compiler}")
  set(infini_ops_cuda_flags -x ${language} -fPIC -fvisibility=hidden -fvisibility-inlines-hidden)
  set(infini_ops_cuda_libraries "-L${root}/lib" "-L${root}/lib64" ${ARGN})
  set(infini_ops_cuda_library_folders "${root}/lib" "${root}/lib64")
  set(infini_ops_cuda_problem "")
  if(root STREQUAL "" OR NOT EXISTS "${infini_ops_cuda_compiler}")
    set(infini_ops_cuda_problem "${sdk} is '${root}', which has no ${compiler}")
  endif()
  set(infini_ops_cuda_remedy "Set ${sdk} in the environment to the folder of the vendor's SDK")
endmacro()

set(detect_nvcc OFF)
if(INFINI_OPS_ACCELERATOR STREQUAL "kNvidia" AND AUTO_DETECT_BACKENDS
    AND NOT DEFINED WITH_CUDA_KERNELS)
  set(detect_nvcc ON)
endif()

if(WITH_CUDA_KERNELS OR detect_nvcc)
  if(INFINI_OPS_ACCELERATOR STREQUAL "kNvidia")
    infini_ops_use_nvidia()
  elseif(INFINI_OPS_ACCELERATOR STREQUAL "kIluvatar")
    infini_ops_use_clang(nvidia COREX_HOME bin/clang++ ivcore cudart cublas cublasLt)
  elseif(INFINI_OPS_ACCELERATOR STREQUAL "kMetax")
    infini_ops_use_clang(metax MACA_PATH mxgpu_llvm/bin/mxcc maca mcruntime mcblas mcblasLt)
  elseif(INFINI_OPS_ACCELERATOR STREQUAL "kMoore")
    infini_ops_use_clang(moore MUSA_HOME bin/mcc musa musart mublas mublasLt)
  else()
    message(FATAL_ERROR
      "WITH_CUDA_KERNELS is ON, but no enabled accelerator can run CUDA sources. Set "
      "WITH_NVIDIA, WITH_ILUVATAR, WITH_METAX or WITH_MOORE to ON, or WITH_CUDA_KERNELS to OFF.")
  endif()
  if(infini_ops_cuda_problem AND WITH_CUDA_KERNELS)
    message(FATAL_ERROR "WITH_CUDA_KERNELS is ON, but ${infini_ops_cuda_problem}. "
      ${infini_ops_cuda_remedy} ", or set WITH_CUDA_KERNELS to OFF.")
  elseif(infini_ops_cuda_problem)
    message(STATUS "No CUDA kernels: ${infini_ops_cuda_problem}. " ${infini_ops_cuda_remedy} ".")
  else()
    list(GET infini_ops_cuda_compiler 0 compiler)
    message(STATUS "Found ${compiler}: enabling WITH_CUDA_KERNELS")
    set(WITH_CUDA_KERNELS ON)
  endif()
endif()

# Compiles sources into the target, as one translation unit called `name`. Reading the headers, for
# the host and for each architecture, takes 2.5 of the 3 CPU-seconds of a small source. The
# operators in `unselected` are left out.
function(infini_ops_add_cuda_sources target name unselected)
  set(sources ${ARGN})
  infini_ops_leave_out(sources "${unselected}")
  if(NOT sources)
    return()
  endif()
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.cu")
  set(includes ${sources})
  list(TRANSFORM includes REPLACE "(.+)" "#include \"\\1\"\n")
  string(JOIN "" content ${includes})
  file(CONFIGURE OUTPUT "${unit}" CONTENT "${content}" @ONLY)
  # nvcc warns about a second optimization option, and some compilers would use this one.
  set(optimization -O3)
  if(CUDA_KERNEL_FLAGS MATCHES "(^|;)-O[0-9]")
    set(optimization "")
  endif()
  add_custom_command(OUTPUT "${unit}.o"
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${infini_ops_cuda_compiler} ${infini_ops_cuda_flags}
      ${CUDA_KERNEL_FLAGS} -std=c++17 ${optimization} -DNDEBUG
      "-DINFINI_OPS_ACCELERATOR=${INFINI_OPS_ACCELERATOR}"
      "-I${PROJECT_SOURCE_DIR}/src" "-I${PROJECT_SOURCE_DIR}/src/include"
      "-I${PROJECT_BINARY_DIR}/include"
      "-I${PROJECT_SOURCE_DIR}/src/cuda/vendor/${infini_ops_cuda_vendor}"
      -MD -MF "${unit}.o.d" -c "${unit}" -o "${unit}.o"
    DEPENDS "${unit}" ${sources} DEPFILE "${unit}.o.d"
    COMMENT "Building CUDA object ${name}: ${sources}" VERBATIM)
  # Also list the sources, which CMake does not compile: the registry reads them from the target.
  target_sources(${target} PRIVATE ${sources} "${unit}.o")
  target_link_libraries(${target} PRIVATE ${infini_ops_cuda_libraries})
endfunction()
