# SPDX-License-Identifier: Apache-2.0
# Fails with what the guide contains and nobody runs.
cmake_minimum_required(VERSION 3.25)
file(READ "${GAPS}" gaps)
if(NOT gaps STREQUAL "")
  message(FATAL_ERROR "${gaps}")
endif()
