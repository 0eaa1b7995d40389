# Decides the one accelerator, if any, that the library is built for beside the CPU. Sets
# INFINI_OPS_ACCELERATOR to its enumerator of `DeviceType`, or to nothing.

# Which there are, the header says that is generated from codegen/devices.py: reading it costs no
# start of Python.
set(device_types "${PROJECT_SOURCE_DIR}/src/include/infini/ops/device_type.h")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${device_types}")
file(STRINGS "${device_types}" rows REGEX "{DeviceType::k")
set(accelerators "")
foreach(row IN LISTS rows)
  string(REGEX MATCH "::(k([A-Za-z]+))" unused "${row}")
  string(TOUPPER "${CMAKE_MATCH_2}" accelerator)
  set(enumerator_${accelerator} ${CMAKE_MATCH_1})
  list(APPEND accelerators ${accelerator})
endforeach()
list(REMOVE_ITEM accelerators CPU)

# Whose presence shows the accelerator.
set(device_files_NVIDIA "/dev/nvidiactl")
set(device_files_ILUVATAR "/dev/iluvatar*")
set(device_files_METAX "/dev/mxcd")
set(device_files_CAMBRICON "/dev/cambricon_ctl" "/dev/cambricon_dev*")
set(device_files_MOORE "/dev/mtgpu*")
set(device_files_ASCEND "/dev/davinci_manager")

set(enabled "")
foreach(accelerator IN LISTS accelerators)
  if(WITH_${accelerator})
    list(APPEND enabled ${accelerator})
  endif()
endforeach()

# What was said by name, ON or OFF, wins over what is found.
if(AUTO_DETECT_DEVICES AND NOT enabled)
  foreach(accelerator IN LISTS accelerators)
    file(GLOB found ${device_files_${accelerator}})
    if(found AND NOT DEFINED WITH_${accelerator})
      message(STATUS "Found ${found}: enabling WITH_${accelerator}")
      list(APPEND enabled ${accelerator})
    endif()
  endforeach()
endif()

list(LENGTH enabled count)
if(count GREATER 1)
  list(TRANSFORM enabled PREPEND "WITH_")
  list(JOIN enabled ", " names)
  message(FATAL_ERROR
    "At most one accelerator can be enabled beside the CPU, got ${names}. Three vendors "
    "present their devices to torch under the same name, so one library can't serve two. "
    "Set one of them to ON, the others to OFF, and AUTO_DETECT_DEVICES to OFF.")
endif()
if(NOT WITH_CPU AND NOT enabled)
  message(FATAL_ERROR
    "No device is enabled: WITH_CPU is OFF and there is no accelerator. "
    "Set WITH_CPU or one of the WITH_<accelerator> options to ON.")
endif()

set(INFINI_OPS_ACCELERATOR "${enumerator_${enabled}}")

if(WITH_TRITON)
  message(FATAL_ERROR
    "WITH_TRITON is ON, but this version has no Triton backend. Set WITH_TRITON to OFF.")
endif()
