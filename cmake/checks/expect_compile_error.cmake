# SPDX-License-Identifier: Apache-2.0
# Runs the compiler command behind "--" and succeeds only if it fails with an error whose line matches EXPECTED: notes and
# the source that compilers quote do not count, because they come with other errors too.
cmake_minimum_required(VERSION 3.25)

set(command "")
set(collecting OFF)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(index RANGE ${last})
  if(collecting)
    list(APPEND command "${CMAKE_ARGV${index}}")
  elseif("${CMAKE_ARGV${index}}" STREQUAL "--")
    set(collecting ON)
  endif()
endforeach()

set(ENV{LC_ALL} C) # the patterns are English
execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "this compiles, but must not")
endif()
if(NOT output MATCHES "error: [^\n]*(${EXPECTED})")
  message(FATAL_ERROR "no error matches '${EXPECTED}':\n${output}")
endif()
