# Selects the accelerator, if any, that the library supports in addition to the CPU. Sets
# INFINI_OPS_ACCELERATOR to its enumerator of `DeviceType`, or to an empty string.

# Writes a header with the platforms, and for each accelerator its enumerator and the patterns of
# files that exist if the machine has it.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -m codegen platforms --output-dir "${PROJECT_BINARY_DIR}"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "Reading ci/platforms failed; the message is above.")
endif()
include("${PROJECT_BINARY_DIR}/platforms.cmake")
file(GLOB platform_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/ci/platforms/*.toml")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${platform_files})

set(enabled "")
foreach(accelerator IN LISTS accelerators)
  if(WITH_${accelerator})
    list(APPEND enabled ${accelerator})
  endif()
endforeach()

# An explicit WITH_<PLATFORM>, ON or OFF, takes precedence over detection.
set(origin "set by an option")
if(AUTO_DETECT_DEVICES AND NOT enabled)
  foreach(accelerator IN LISTS accelerators)
    file(GLOB found ${device_files_${accelerator}})
    if(found AND NOT DEFINED WITH_${accelerator})
      message(STATUS "Found ${found}: enabling WITH_${accelerator}")
      set(origin "AUTO_DETECT_DEVICES is ON and found ${found}")
      list(APPEND enabled ${accelerator})
    endif()
  endforeach()
endif()

list(LENGTH enabled count)
if(count GREATER 1)
  list(TRANSFORM enabled PREPEND "WITH_")
  list(JOIN enabled ", " names)
  message(FATAL_ERROR
    "At most one accelerator can be enabled beside the CPU, got ${names}. Several vendors "
    "present their devices to torch under the same name, so one library can't serve two. "
    "Set one of them to ON, the others to OFF, and AUTO_DETECT_DEVICES to OFF.")
endif()
if(NOT WITH_CPU AND NOT enabled)
  message(FATAL_ERROR
    "No device is enabled: WITH_CPU is OFF and there is no accelerator. "
    "Set WITH_CPU or one of the WITH_<accelerator> options to ON.")
endif()

# `python -m ci` sets the platform of its run. A build for another platform would be useless.
set(asked "$ENV{INFINI_CI_PLATFORM}")
string(TOUPPER "${asked}" expected)
string(REGEX REPLACE "^CPU$" "" expected "${expected}")
if(asked AND NOT enabled STREQUAL expected)
  set(files "${device_files_${expected}}")
  if(NOT expected)
    set(remedy "Set AUTO_DETECT_DEVICES and WITH_${enabled} to OFF")
  else()
    set(remedy "Set WITH_${expected} to ON and AUTO_DETECT_DEVICES to OFF")
  endif()
  if(enabled)
    set(got "WITH_${enabled} (${origin})")
  elseif(AUTO_DETECT_DEVICES)
    list(JOIN files ", " files)
    set(got "no accelerator (no WITH_${expected}=ON, and AUTO_DETECT_DEVICES found no ${files})")
  else()
    set(got "no accelerator (no WITH_${expected}=ON, and AUTO_DETECT_DEVICES is OFF)")
  endif()
  message(FATAL_ERROR
    "This run is for ${asked} (INFINI_CI_PLATFORM), but the build is for another platform: got "
    "${got}. ${remedy}, in SKBUILD_CMAKE_DEFINE under platforms.${asked}.environment of the "
    "configuration, or as options of CMake.")
endif()

set(INFINI_OPS_ACCELERATOR "${enumerator_${enabled}}")
