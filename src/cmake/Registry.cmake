# Reads from the sources of a target which implementation is at which slot, and stops at two for one
# (operator, device, slot). Writes `native_ops_metadata.json` into a folder.
function(infini_ops_write_registry target output)
  get_target_property(sources ${target} SOURCES)
  set(written "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR "${source}" is_generated)
    if(NOT is_generated)
      list(APPEND written "${source}")
    endif()
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${written})
  file(GLOB inputs CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/codegen/*.py" "${PROJECT_SOURCE_DIR}/src/base/*.h")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${inputs})
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -m codegen registry
      --output-dir "${output}" --accelerator "${INFINI_OPS_ACCELERATOR}" ${written}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "The sources can't be registered; the message is above.")
  endif()
endfunction()
