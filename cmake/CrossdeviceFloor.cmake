# SPDX-License-Identifier: Apache-2.0
# The library: one target for users, the same objects once more for our tests, and a function that adds a floor.
#
#   crossdevice            what users link (crossdevice::crossdevice): shared or static, hidden visibility
#   crossdevice_internal   the same objects as an archive, for tests that reach symbols users cannot
#   crossdevice_<floor>    the objects of one floor, compiled once

function(crossdevice_library)
  file(STRINGS "${PROJECT_SOURCE_DIR}/include/crossdevice/core/version.h" lines REGEX "#define CROSSDEVICE_VERSION_[A-Z]+ [0-9]+")
  list(TRANSFORM lines REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN lines "." header_version)
  if(NOT header_version STREQUAL PROJECT_VERSION)
    message(FATAL_ERROR "core/version.h says ${header_version}, the project is version ${PROJECT_VERSION}")
  endif()

  add_library(crossdevice)
  add_library(crossdevice::crossdevice ALIAS crossdevice)
  crossdevice_compile_options(crossdevice)
  set_target_properties(
    crossdevice
    PROPERTIES VERSION ${PROJECT_VERSION}
               SOVERSION ${PROJECT_VERSION_MAJOR}
               VERIFY_INTERFACE_HEADER_SETS ON
               INTERFACE_HEADER_SETS_TO_VERIFY HEADERS
               LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
               ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

  if(NOT CROSSDEVICE_SANITIZE)
    # What the library calls of itself is its own: no look-up in a table, which a small reduction would make some sixty times.
    target_link_options(crossdevice PRIVATE -Wl,-Bsymbolic-functions)
    target_link_options(crossdevice PRIVATE -Wl,--no-undefined) # a sanitizer's run-time library is linked into programs only
  endif()

  add_library(crossdevice_internal STATIC EXCLUDE_FROM_ALL)
  crossdevice_compile_options(crossdevice_internal)
  target_include_directories(crossdevice_internal INTERFACE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")

  crossdevice_require(Threads::Threads)
  foreach(library IN ITEMS crossdevice crossdevice_internal)
    target_compile_features(${library} PUBLIC cxx_std_20)
    target_link_libraries(${library} PUBLIC Threads::Threads)
  endforeach()
  if(EXISTS "${PROJECT_SOURCE_DIR}/include/crossdevice/crossdevice.h")
    crossdevice_public_headers("${PROJECT_SOURCE_DIR}/include/crossdevice/crossdevice.h")
  endif()
endfunction()

function(crossdevice_public_headers)
  target_sources(crossdevice PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${ARGN})
  set_property(GLOBAL APPEND PROPERTY CROSSDEVICE_PUBLIC_HEADERS ${ARGN})
endfunction()

# crossdevice_floor(NAME core HEADERS a.h ... [VENDOR_HEADERS b.h ...] [SOURCES a.cc ...] [LIBRARIES fmt::fmt ...])
# HEADERS lie in include/crossdevice/<NAME>, SOURCES in src/<NAME>; a floor may have headers only. Private headers are
# included as "<floor>/detail/x.h" and need not be listed. VENDOR_HEADERS are installed like HEADERS, but include a header of
# CUDA or NCCL, which only some who build the library have, so that only tests compile them. LIBRARIES are private: no public header may show them.
function(crossdevice_floor)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "HEADERS;VENDOR_HEADERS;SOURCES;LIBRARIES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "crossdevice_floor(${arg_NAME}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()

  list(TRANSFORM arg_HEADERS PREPEND "${PROJECT_SOURCE_DIR}/include/crossdevice/${arg_NAME}/")
  list(TRANSFORM arg_VENDOR_HEADERS PREPEND "${PROJECT_SOURCE_DIR}/include/crossdevice/${arg_NAME}/")
  file(GLOB on_disk "${PROJECT_SOURCE_DIR}/include/crossdevice/${arg_NAME}/*.h")
  foreach(header IN LISTS on_disk)
    if(NOT header IN_LIST arg_HEADERS AND NOT header IN_LIST arg_VENDOR_HEADERS)
      message(WARNING "${header} is in no floor: list it in src/${arg_NAME}/CMakeLists.txt")
    endif()
  endforeach()
  file(GLOB_RECURSE on_disk RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  foreach(source IN LISTS on_disk)
    if(NOT source IN_LIST arg_SOURCES)
      message(WARNING "src/${arg_NAME}/${source} is in no floor: list it in src/${arg_NAME}/CMakeLists.txt")
    endif()
  endforeach()

  if(arg_HEADERS)
    crossdevice_public_headers(${arg_HEADERS})
  endif()
  if(arg_VENDOR_HEADERS)
    target_sources(crossdevice PUBLIC FILE_SET vendor TYPE HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${arg_VENDOR_HEADERS})
  endif()
  if(NOT arg_SOURCES)
    return()
  endif()
  crossdevice_require_namespaced(${arg_LIBRARIES})
  add_library(crossdevice_${arg_NAME} OBJECT ${arg_SOURCES})
  crossdevice_compile_options(crossdevice_${arg_NAME})
  crossdevice_fuzz_edges(crossdevice_${arg_NAME})
  target_include_directories(crossdevice_${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  # Nobody puts a function of the same name in front of one of ours, so exported ones may be inlined here too.
  target_compile_options(crossdevice_${arg_NAME} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
  target_link_libraries(crossdevice_${arg_NAME} PRIVATE Threads::Threads ${arg_LIBRARIES})
  foreach(library IN ITEMS crossdevice crossdevice_internal)
    target_sources(${library} PRIVATE $<TARGET_OBJECTS:crossdevice_${arg_NAME}>)
    target_link_libraries(${library} PRIVATE ${arg_LIBRARIES})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY CROSSDEVICE_LIBRARIES ${arg_LIBRARIES})
endfunction()
