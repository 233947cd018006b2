# SPDX-License-Identifier: Apache-2.0
# Finds the header nccl.h (the library itself is loaded at run time) and its version.
# Sets NCCL_FOUND, NCCL_INCLUDE_DIR, NCCL_VERSION and defines NCCL::nccl_headers.
# Order: NCCL_ROOT/NCCL_HOME/NCCL_DIR, NCCL's own CMake package, the CUDA toolkit (NCCL_CUDA_HINT), the system and
# pkg-config, the Python wheel nvidia-nccl-cu*.

set(nccl_hints "")
foreach(variable IN ITEMS NCCL_ROOT NCCL_HOME NCCL_DIR)
  foreach(value IN ITEMS "${${variable}}" "$ENV{${variable}}")
    if(value)
      list(APPEND nccl_hints "${value}")
    endif()
  endforeach()
endforeach()
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_hints} PATH_SUFFIXES include NO_DEFAULT_PATH)

if(NOT NCCL_INCLUDE_DIR)
  find_package(NCCL QUIET CONFIG)
  if(TARGET NCCL::nccl)
    get_target_property(nccl_directories NCCL::nccl INTERFACE_INCLUDE_DIRECTORIES)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_directories} NO_DEFAULT_PATH)
  endif()
endif()

if(NOT NCCL_INCLUDE_DIR AND NCCL_CUDA_HINT)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS "${NCCL_CUDA_HINT}" "${NCCL_CUDA_HINT}/../.." PATH_SUFFIXES include
            NO_DEFAULT_PATH)
endif()

if(NOT NCCL_INCLUDE_DIR)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(PC_NCCL QUIET nccl)
  endif()
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${PC_NCCL_INCLUDE_DIRS})
endif()

if(NOT NCCL_INCLUDE_DIR)
  set(nccl_prefixes "")
  foreach(variable IN ITEMS VIRTUAL_ENV CONDA_PREFIX)
    if(DEFINED ENV{${variable}})
      file(GLOB nccl_wheels "$ENV{${variable}}/lib/python3*/site-packages/nvidia/nccl")
      list(APPEND nccl_prefixes ${nccl_wheels})
    endif()
  endforeach()
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_prefixes} PATH_SUFFIXES include NO_DEFAULT_PATH)
endif()

set(NCCL_VERSION "")
if(NCCL_INCLUDE_DIR)
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" nccl_line REGEX "^#define NCCL_${part} +[0-9]+" LIMIT_COUNT 1)
    string(REGEX REPLACE ".*NCCL_${part} +([0-9]+).*" "\\1" nccl_${part} "${nccl_line}")
  endforeach()
  set(NCCL_VERSION "${nccl_MAJOR}.${nccl_MINOR}.${nccl_PATCH}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR)

if(NCCL_FOUND AND NOT TARGET NCCL::nccl_headers)
  add_library(NCCL::nccl_headers INTERFACE IMPORTED)
  target_include_directories(NCCL::nccl_headers INTERFACE "${NCCL_INCLUDE_DIR}")
endif()
