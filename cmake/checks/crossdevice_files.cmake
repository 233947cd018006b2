# SPDX-License-Identifier: Apache-2.0
# Included by the check scripts: where the project is, and how they end.
if(NOT IS_DIRECTORY "${ROOT}/include/crossdevice")
  message(FATAL_ERROR "pass -DROOT=<the project's folder> before -P")
endif()

set(floors core device comm collective ops strategy)
set(bad "")

# files_under(OUT tree...): every C++ and CUDA file below the given folders, relative to ROOT, sorted.
function(files_under out)
  set(found "")
  foreach(tree IN LISTS ARGN)
    file(GLOB_RECURSE files RELATIVE "${ROOT}" "${ROOT}/${tree}/*.h" "${ROOT}/${tree}/*.cuh" "${ROOT}/${tree}/*.cc" "${ROOT}/${tree}/*.cu")
    list(APPEND found ${files})
  endforeach()
  list(SORT found)
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# Reads a file into a list of lines that survives CMake: brackets and semicolons, which would join or split entries,
# become spaces and commas, and an empty line stays an entry.
function(lines_of out file)
  file(READ "${ROOT}/${file}" text)
  string(REGEX REPLACE "[][]" " " text "${text}")
  string(REPLACE ";" "," text "${text}")
  string(REPLACE "\\" "/" text "${text}")
  string(REPLACE "\n" ";" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

macro(complain text)
  string(APPEND bad "\n  ${text}")
endmacro()

macro(finish title)
  if(bad)
    message(FATAL_ERROR "${title}:${bad}")
  endif()
endmacro()
