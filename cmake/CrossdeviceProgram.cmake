# SPDX-License-Identifier: Apache-2.0
# Programs (installed) and micro-benches (not installed); both land in <build>/bin.

# crossdevice_program(NAME crossdevice-x SOURCES a.cc ... [LIBRARIES CLI11::CLI11 ...])
function(crossdevice_program)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;LIBRARIES")
  if(NOT CROSSDEVICE_BUILD_PROGRAMS)
    return()
  endif()
  crossdevice_require_namespaced(${arg_LIBRARIES})
  add_executable(${arg_NAME} ${arg_SOURCES})
  crossdevice_compile_options(${arg_NAME})
  crossdevice_include_bench(${arg_NAME} PRIVATE)
  target_link_libraries(${arg_NAME} PRIVATE crossdevice::crossdevice ${arg_LIBRARIES})
  set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin"
                                               INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  set_property(GLOBAL APPEND PROPERTY CROSSDEVICE_PROGRAMS ${arg_NAME})
endfunction()

# crossdevice_program_parts(NAME x_parts SOURCES a.cc ... [LIBRARIES ...] [HEAVY]): what a program and its tests share. HEAVY is for
# what computes so much that instrumented code has to be optimised.
function(crossdevice_program_parts)
  cmake_parse_arguments(PARSE_ARGV 0 arg "HEAVY" "NAME" "SOURCES;LIBRARIES")
  if(NOT CROSSDEVICE_BUILD_PROGRAMS)
    return()
  endif()
  crossdevice_require_namespaced(${arg_LIBRARIES})
  add_library(${arg_NAME} STATIC ${arg_SOURCES})
  crossdevice_compile_options(${arg_NAME})
  if(CROSSDEVICE_SANITIZE AND NOT arg_HEAVY)
    target_compile_options(${arg_NAME} PRIVATE -O0) # as tests are: takes the compiler half the time
  endif()
  crossdevice_include_bench(${arg_NAME} PUBLIC)
  target_link_libraries(${arg_NAME} PUBLIC crossdevice::crossdevice ${arg_LIBRARIES})
endfunction()

# crossdevice_micro_bench(NAME bench_x SOURCES bench_x.cc [LIBRARIES ...]): Google Benchmark with its main, and the
# library's hidden symbols within reach.
function(crossdevice_micro_bench)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;LIBRARIES")
  if(NOT CROSSDEVICE_BUILD_BENCH)
    return()
  endif()
  crossdevice_require(benchmark::benchmark)
  crossdevice_require_namespaced(${arg_LIBRARIES})
  add_executable(${arg_NAME} ${arg_SOURCES})
  crossdevice_compile_options(${arg_NAME})
  crossdevice_include_bench(${arg_NAME} PRIVATE)
  target_link_libraries(${arg_NAME} PRIVATE crossdevice_internal benchmark::benchmark benchmark::benchmark_main
                                            ${arg_LIBRARIES})
  set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endfunction()
