# SPDX-License-Identifier: Apache-2.0
# Third-party libraries by target name, found the first time somebody names them: what nobody uses is not needed.
include("${CMAKE_CURRENT_LIST_DIR}/crossdevice-dependencies.cmake")

# Makes each TARGET exist, or stops the configuration with the way to install it.
function(crossdevice_require)
  foreach(target IN LISTS ARGN)
    crossdevice_find_target(${target})
    if(NOT TARGET ${target})
      message(FATAL_ERROR "crossdevice needs ${target}, which was not found. On Debian and Ubuntu, "
                          "cmake/install-dependencies installs everything that is missing.")
    endif()
  endforeach()
endfunction()

# Keeps the third-party targets among ARGN, which are spelled with '::'.
function(crossdevice_require_namespaced)
  list(FILTER ARGN INCLUDE REGEX "::")
  list(FILTER ARGN EXCLUDE REGEX "^crossdevice::")
  crossdevice_require(${ARGN})
endfunction()
