# SPDX-License-Identifier: Apache-2.0
# The stairs: a floor includes itself and lower floors only; public headers include the standard library and each other;
# vendor headers stay in the one folder that is theirs.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/crossdevice_files.cmake")

# What only one kind of folder may include: header pattern, then the pattern of the files that may.
set(walls
    "^(cuda|cub/|thrust/|nvtx3/|cooperative_groups)" "^src/[a-z]+/cuda/|/interop_cuda[a-z_]*\\.(h|cc)$"
    "^nccl" "^src/comm/nccl/|/interop_nccl[a-z_]*\\.(h|cc)$"
    "^(ucp|ucs|uct|ucm)/" "^src/comm/ucx/"
    "^(asio|boost/asio|openssl/)" "^src/comm/"
    "^(sys/socket|netinet/|arpa/|netdb)" "^src/comm/")

function(check_file file tree floor below)
  file(STRINGS "${ROOT}/${file}" lines REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "include[ \t]*[<\"]([^>\"]+)[>\"]" _ "${line}")
    set(header "${CMAKE_MATCH_1}")
    if(header STREQUAL "crossdevice/crossdevice.h" AND NOT file STREQUAL "include/crossdevice/crossdevice.h")
      complain("${file}: the umbrella header is for users, include what you need")
    endif()
    if(header MATCHES "^(tests|bench)/|^\\.\\.?/")
      complain("${file}: must not include ${header}")
    endif()
    set(room "")
    if(header MATCHES "^(crossdevice/)?([a-z]+)/")
      set(room "${CMAKE_MATCH_2}")
    endif()
    if(room IN_LIST floors)
      if(NOT room IN_LIST below)
        complain("${file}: floor '${floor}' must not include '${header}', which lies above it")
      elseif(header MATCHES "^[a-z]+/detail/" AND NOT room STREQUAL floor)
        complain("${file}: ${header} is private to floor '${room}'")
      endif()
    elseif(tree STREQUAL "include/crossdevice" AND NOT file MATCHES "/interop_[a-z_]+\\.h$")
      if(NOT header MATCHES "^crossdevice/" AND NOT header MATCHES "^[a-z0-9_]+$")
        complain("${file}: a public header must not include ${header}: only the C++ standard library and our own headers")
      endif()
    endif()
    foreach(index RANGE 0 8 2)
      math(EXPR next "${index} + 1")
      list(GET walls ${index} pattern)
      list(GET walls ${next} allowed)
      if(header MATCHES "${pattern}" AND NOT file MATCHES "${allowed}")
        complain("${file}: ${header} may be included only by files like ${allowed}")
      endif()
    endforeach()
  endforeach()
  set(bad "${bad}" PARENT_SCOPE)
endfunction()

foreach(tree IN ITEMS include/crossdevice src)
  set(below "")
  foreach(floor IN LISTS floors)
    list(APPEND below ${floor})
    files_under(files ${tree}/${floor})
    foreach(file IN LISTS files)
      check_file(${file} ${tree} ${floor} "${below}")
    endforeach()
  endforeach()
endforeach()
finish("floor plan broken")
