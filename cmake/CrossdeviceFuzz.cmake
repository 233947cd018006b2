# SPDX-License-Identifier: Apache-2.0
# Fuzz targets: one function that eats bytes, built twice. Everywhere as a ctest that replays the corpus of the target; with
# CROSSDEVICE_FUZZ as a libFuzzer program too, for which the library is compiled to say which of its edges were taken.

set(CROSSDEVICE_FUZZ OFF CACHE STRING "Build the libFuzzer programs, clang only: ON, OFF or AUTO (if the compiler is clang)")
set_property(CACHE CROSSDEVICE_FUZZ PROPERTY STRINGS AUTO ON OFF)
set(CROSSDEVICE_WITH_FUZZERS OFF)
if(CROSSDEVICE_FUZZ)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(CROSSDEVICE_WITH_FUZZERS ON)
  elseif(NOT CROSSDEVICE_FUZZ STREQUAL "AUTO")
    message(FATAL_ERROR "CROSSDEVICE_FUZZ=${CROSSDEVICE_FUZZ} needs clang, the compiler is ${CMAKE_CXX_COMPILER_ID}. Use CXX=clang++-14.")
  endif()
endif()

# The edges that the target's code takes steer the fuzzers. Programs that are no fuzzer pay a counter for each edge.
function(crossdevice_fuzz_edges target)
  if(CROSSDEVICE_WITH_FUZZERS)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

if(CROSSDEVICE_WITH_FUZZERS)
  add_custom_target(fuzzers) # all of them; nobody else needs them
endif()

# crossdevice_fuzz_target(NAME x SOURCES x.cc [LIBRARIES ...])
# x.cc defines LLVMFuzzerTestOneInput(). fuzz_x_replay runs it on the files of corpus/x, as the ctest fuzz.x; fuzz_x, where there are fuzzers, lets
# libFuzzer look for more. Both are made of the same objects.
function(crossdevice_fuzz_target)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;LIBRARIES")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_NAME OR NOT arg_SOURCES)
    message(FATAL_ERROR "crossdevice_fuzz_target(${arg_NAME}): needs NAME and SOURCES; unknown arguments: '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  set(corpus "${CMAKE_CURRENT_SOURCE_DIR}/corpus/${arg_NAME}")
  if(NOT IS_DIRECTORY "${corpus}")
    message(FATAL_ERROR "crossdevice_fuzz_target(${arg_NAME}): there is no corpus at ${corpus}")
  endif()
  crossdevice_require_namespaced(${arg_LIBRARIES})

  set(objects fuzz_${arg_NAME}_objects)
  add_library(${objects} OBJECT ${arg_SOURCES})
  crossdevice_compile_options(${objects})
  crossdevice_fuzz_edges(${objects})
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT CROSSDEVICE_SANITIZE)
    target_compile_options(${objects} PRIVATE -O1) # as tests: the library is what must be fast
  endif()
  target_include_directories(${objects} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  crossdevice_include_bench(${objects} PRIVATE)
  target_link_libraries(${objects} PRIVATE crossdevice_internal ${arg_LIBRARIES})

  set(replay fuzz_${arg_NAME}_replay)
  add_executable(${replay} $<TARGET_OBJECTS:${objects}> $<TARGET_OBJECTS:fuzz_replay_main>)
  crossdevice_compile_options(${replay})
  target_link_libraries(${replay} PRIVATE crossdevice_internal ${arg_LIBRARIES})
  add_dependencies(tests-asan ${replay})
  add_test(NAME fuzz.${arg_NAME} COMMAND ${replay} "${corpus}")
  set_tests_properties(fuzz.${arg_NAME} PROPERTIES LABELS "unit;asan" TIMEOUT 120)

  if(CROSSDEVICE_WITH_FUZZERS)
    add_executable(fuzz_${arg_NAME} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${objects}>)
    crossdevice_compile_options(fuzz_${arg_NAME})
    target_link_libraries(fuzz_${arg_NAME} PRIVATE crossdevice_internal ${arg_LIBRARIES})
    target_link_options(fuzz_${arg_NAME} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers fuzz_${arg_NAME})
  endif()
endfunction()
