# SPDX-License-Identifier: Apache-2.0
# MODE=format rewrites every C++ file in place; MODE=format-check fails if that would change one.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/crossdevice_files.cmake")

if(NOT CLANG_FORMAT OR NOT EXISTS "${CLANG_FORMAT}")
  message(FATAL_ERROR "clang-format-${VERSION} was not found: cmake/install-dependencies --with-tools installs it")
endif()
execute_process(COMMAND "${CLANG_FORMAT}" --version OUTPUT_VARIABLE version)
if(NOT version MATCHES "version ${VERSION}\\.")
  message(FATAL_ERROR "clang-format ${VERSION} is needed, ${CLANG_FORMAT} is ${version}")
endif()

files_under(files include src bench tests)
set(arguments -i)
if(MODE STREQUAL "format-check")
  set(arguments --dry-run -Werror)
endif()
execute_process(COMMAND "${CLANG_FORMAT}" ${arguments} --style=file ${files} WORKING_DIRECTORY "${ROOT}" RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "not formatted as .clang-format says: build the target 'format'")
endif()
