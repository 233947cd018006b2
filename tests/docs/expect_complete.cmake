# SPDX-License-Identifier: Apache-2.0
# Says which of the guide's commands are not run, and why; fails with what it contains and nobody speaks of.
cmake_minimum_required(VERSION 3.25)
file(READ "${NOT_RUN}" not_run)
message("${not_run}")
file(READ "${GAPS}" gaps)
if(NOT gaps STREQUAL "")
  message(FATAL_ERROR "${gaps}")
endif()
