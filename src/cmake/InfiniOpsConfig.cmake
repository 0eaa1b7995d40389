# find_package(InfiniOps): the target InfiniOps::infini_ops, the installed library for C++ programs.
#
# A library with the PyTorch backend needs torch. The program links that of the Python that CMake
# finds, or of TORCH_PYTHON_EXECUTABLE. It must be the torch that the library was built with.

if(CMAKE_VERSION VERSION_LESS 3.20)
  set(InfiniOps_FOUND FALSE)
  set(InfiniOps_NOT_FOUND_MESSAGE
    "This is CMake ${CMAKE_VERSION}; expected 3.20 or later. Run `python -m pip install -U cmake`.")
  return()
endif()
cmake_path(SET infini_ops_package NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../..")

if(NOT TARGET InfiniOps::infini_ops)
  add_library(InfiniOps::infini_ops SHARED IMPORTED)
  set_target_properties(InfiniOps::infini_ops PROPERTIES
    IMPORTED_LOCATION "${infini_ops_package}/libinfini_ops.so"
    IMPORTED_SONAME libinfini_ops.so)
  target_include_directories(InfiniOps::infini_ops INTERFACE "${infini_ops_package}/include")
  target_compile_features(InfiniOps::infini_ops INTERFACE cxx_std_17)
  if(EXISTS "${infini_ops_package}/torch_ops_metadata.json")
    if(NOT Python_EXECUTABLE)
      find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
    endif()
    set(WITH_TORCH ON)
    include("${CMAKE_CURRENT_LIST_DIR}/Torch.cmake")
    if(NOT TARGET infini_ops_torch)
      infini_ops_add_torch_target()
    endif()
    # The program itself needs torch: the loader does not search the program's folders for what a
    # library needs.
    target_link_libraries(InfiniOps::infini_ops INTERFACE -Wl,--no-as-needed infini_ops_torch)
  endif()
endif()
