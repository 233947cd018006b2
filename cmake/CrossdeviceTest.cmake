# SPDX-License-Identifier: Apache-2.0
# Tests: one program per file, each test case a ctest of its own; files that must not compile; nothing forgotten.
include(GoogleTest)

# Everything the tests with that label need: a sanitizer's run need not build the others.
add_custom_target(tests-asan)
add_custom_target(tests-tsan)

# Instrumented tests are not optimised, so that most of their compiler's time went into the headers that all of them include.
# Only there: the other builds show whether each test includes what it uses.
# Its users name it by its path in the build tree, not by CMake's REUSE_FROM, which writes whole paths that a compiler cache takes for another
# header's in another checkout.
function(crossdevice_precompile_test_headers target sources)
  if(NOT CMAKE_GENERATOR MATCHES "Ninja") # which runs the compiler in the build tree's root
    return()
  endif()
  if(NOT TARGET crossdevice_test_headers)
    set(nothing "${PROJECT_BINARY_DIR}/test_headers.cc")
    file(CONFIGURE OUTPUT "${nothing}" CONTENT "")
    add_library(crossdevice_test_headers OBJECT EXCLUDE_FROM_ALL "${nothing}")
    crossdevice_compile_options(crossdevice_test_headers)
    target_compile_options(crossdevice_test_headers PRIVATE -O0 -fPIE -Xclang -fno-pch-timestamp)
    target_link_libraries(crossdevice_test_headers PRIVATE GTest::gtest GTest::gmock)
    set_target_properties(crossdevice_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF) # as programs are
    set(headers gmock/gmock.h gtest/gtest.h algorithm array atomic chrono functional map memory numeric optional span string thread vector)
    list(TRANSFORM headers REPLACE "(.+)" "<\\1>" OUTPUT_VARIABLE in_brackets)
    target_precompile_headers(crossdevice_test_headers PRIVATE ${in_brackets})
    set(precompiled "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/crossdevice_test_headers.dir/cmake_pch.hxx.pch")
    set_property(GLOBAL PROPERTY CROSSDEVICE_TEST_HEADERS "${precompiled}")
    crossdevice_sum_of_headers("${precompiled}.sum" "${headers}")
  endif()
  get_property(precompiled GLOBAL PROPERTY CROSSDEVICE_TEST_HEADERS)
  file(RELATIVE_PATH path "${CMAKE_BINARY_DIR}" "${precompiled}")
  target_compile_options(${target} PRIVATE "SHELL:-include-pch ${path}" -Winvalid-pch)
  set_property(SOURCE ${sources} APPEND PROPERTY OBJECT_DEPENDS "${precompiled}")
endfunction()

# What ccache, told so by CCACHE_PCH_EXTSUM, takes for the precompiled header's content: that of the headers. The file itself has paths in it.
function(crossdevice_sum_of_headers sum headers)
  set(including "${PROJECT_BINARY_DIR}/test_headers_sum.cc")
  list(TRANSFORM headers REPLACE "(.+)" "#include <\\1>\n" OUTPUT_VARIABLE lines)
  list(JOIN lines "" content)
  file(CONFIGURE OUTPUT "${including}" CONTENT "${content}" @ONLY)
  get_target_property(directories GTest::gtest INTERFACE_INCLUDE_DIRECTORIES)
  list(TRANSFORM directories PREPEND "-I")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 ${directories} -E -P "${including}" OUTPUT_VARIABLE text RESULT_VARIABLE failed ERROR_QUIET)
  if(failed)
    file(REMOVE "${sum}")
    return()
  endif()
  string(SHA256 digest "${CMAKE_CXX_COMPILER_VERSION} ${CROSSDEVICE_SANITIZE} ${text}")
  file(CONFIGURE OUTPUT "${sum}" CONTENT "${digest}\n")
endfunction()

# crossdevice_test(NAME x_test SOURCES x_test.cc LABELS unit asan tsan [LIBRARIES ...] [TIMEOUT seconds] [PUBLIC] [WHOLE] [HEAVY])
# Links GoogleTest's main, gmock and the library's hidden symbols; PUBLIC links what users link instead. WHOLE makes
# the program a single ctest: for suites of so many parameters that starting a process for each would be the cost.
# HEAVY is for tests that compute so much themselves that optimising them saves more than it costs the compiler.
# LABELS asan and tsan put it into the runs under that sanitizer, long keeps it out of all but the full run, gpu puts it into
# what cmake/gpu-bundle makes.
function(crossdevice_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "PUBLIC;WHOLE;HEAVY" "NAME;TIMEOUT" "SOURCES;LABELS;LIBRARIES")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_LABELS)
    message(FATAL_ERROR "crossdevice_test(${arg_NAME}): needs LABELS; unknown arguments: '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(CROSSDEVICE_SANITIZE)  # what is instrumented takes several times as long
    math(EXPR arg_TIMEOUT "3 * ${arg_TIMEOUT}")
  endif()
  crossdevice_require(GTest::gtest_main GTest::gmock)
  crossdevice_require_namespaced(${arg_LIBRARIES})
  add_executable(${arg_NAME} ${arg_SOURCES})
  if("crossdevice::emulated_gpus" IN_LIST arg_LIBRARIES)
    target_sources(${arg_NAME} PRIVATE "$<TARGET_OBJECTS:crossdevice_emulation_check>")
  endif()
  crossdevice_compile_options(${arg_NAME})
  # The library is what must be fast; the tests must be built quickly, and instrumented code takes the compiler longest.
  if(CROSSDEVICE_SANITIZE AND NOT arg_HEAVY)
    target_compile_options(${arg_NAME} PRIVATE -O0)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      crossdevice_precompile_test_headers(${arg_NAME} "${arg_SOURCES}")
    endif()
  elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${arg_NAME} PRIVATE -O1)
  endif()
  target_include_directories(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  if(arg_PUBLIC)
    set(library crossdevice::crossdevice)
  else()
    set(library crossdevice_internal)
  endif()
  target_link_libraries(${arg_NAME} PRIVATE ${library} GTest::gtest_main GTest::gmock ${arg_LIBRARIES})

  foreach(sanitizer IN ITEMS asan tsan)
    if(sanitizer IN_LIST arg_LABELS)
      add_dependencies(tests-${sanitizer} ${arg_NAME})
    endif()
  endforeach()

  if("gpu" IN_LIST arg_LABELS)
    set_property(GLOBAL APPEND PROPERTY CROSSDEVICE_GPU_TESTS ${arg_NAME})
  endif()

  if(arg_WHOLE)
    add_test(NAME ${arg_NAME} COMMAND ${arg_NAME})
    set_tests_properties(${arg_NAME} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
  else()
    gtest_discover_tests(${arg_NAME} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_LIST ${arg_NAME}_TESTS
                         PROPERTIES TIMEOUT ${arg_TIMEOUT})
    # A list as the value of a property does not survive gtest_discover_tests, so the labels follow in a file of their own.
    set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${arg_NAME}_labels.cmake")
    file(WRITE "${labels_file}" "if(${arg_NAME}_TESTS)\n  set_tests_properties(\${${arg_NAME}_TESTS} PROPERTIES LABELS \"${arg_LABELS}\")\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
  endif()

  list(TRANSFORM arg_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set_property(GLOBAL APPEND PROPERTY CROSSDEVICE_TEST_SOURCES ${arg_SOURCES})
endfunction()

# crossdevice_gpu_test(NAME gpu_x_test SOURCES x_test.cc): one that needs a GPU; in every build: without one it is skipped, with the reason. Sources that
# run on emulated GPUs or on hosts too (support/gpus_under_test.h, support/values.h) are compiled for a real one here.
function(crossdevice_gpu_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES")
  crossdevice_test(NAME ${arg_NAME} SOURCES ${arg_SOURCES} LABELS gpu WHOLE TIMEOUT 600)
  target_compile_definitions(${arg_NAME} PRIVATE CROSSDEVICE_TESTS_ON_A_GPU)
  # One at a time: some take all of the GPU's memory.
  set_tests_properties(${arg_NAME} PROPERTIES SKIP_REGULAR_EXPRESSION "no GPU: ;PASSED  \\] 0 tests" RESOURCE_LOCK gpu)
endfunction()

# crossdevice_compile_fail(NAME x_cf SOURCE x_cf.cc): a file whose sections, each under `#if defined(SECTION)`, must
# not compile, while the file without any section must. A section states what the compiler has to say, as a regular
# expression that g++ and clang both satisfy, on the line of its #if:
#   #if defined(PASSES_A_NULL_STREAM)  // error: deleted function
function(crossdevice_compile_fail)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;SOURCE" "")
  set(source "${CMAKE_CURRENT_SOURCE_DIR}/${arg_SOURCE}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
  set(compile "${CMAKE_CXX_COMPILER}" -std=c++20 -fsyntax-only -I "${PROJECT_SOURCE_DIR}/include" "${source}")
  add_test(NAME ${arg_NAME}.compiles_without_sections COMMAND ${compile})
  set_tests_properties(${arg_NAME}.compiles_without_sections PROPERTIES LABELS "unit;compile_fail")

  file(STRINGS "${source}" sections REGEX "^#if") # every one: a misspelt section must not vanish from the tests
  if(NOT sections)
    message(FATAL_ERROR "${source} has no section '#if defined(NAME)  // error: regular expression'")
  endif()
  foreach(section IN LISTS sections)
    if(NOT section MATCHES "^#if defined\\(([A-Z0-9_]+)\\)  // error: (.+)$")
      message(FATAL_ERROR "${source}: '${section}' must read '#if defined(NAME)  // error: regular expression'")
    endif()
    set(name "${CMAKE_MATCH_1}")
    set(expected "${CMAKE_MATCH_2}")
    add_test(NAME ${arg_NAME}.${name} COMMAND "${CMAKE_COMMAND}" -DEXPECTED=${expected} -P
                                              "${PROJECT_SOURCE_DIR}/cmake/checks/expect_compile_error.cmake" -- ${compile} -D${name})
    set_tests_properties(${arg_NAME}.${name} PROPERTIES LABELS "unit;compile_fail")
  endforeach()
  set_property(GLOBAL APPEND PROPERTY CROSSDEVICE_TEST_SOURCES "${source}")
endfunction()

# Stops the configuration when a test file on disk belongs to no target: it would never run and nobody would notice.
function(crossdevice_check_tests_listed)
  file(GLOB_RECURSE on_disk CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*_test.cc" "${PROJECT_SOURCE_DIR}/tests/*_cf.cc")
  get_property(listed GLOBAL PROPERTY CROSSDEVICE_TEST_SOURCES)
  foreach(file IN LISTS on_disk)
    if(NOT file IN_LIST listed)
      message(FATAL_ERROR "${file} belongs to no test: add it to the CMakeLists.txt of its folder")
    endif()
  endforeach()
endfunction()

# The target gpu-programs: what needs a GPU, and gpu-programs.txt, which lists the files for cmake/gpu-bundle.
function(crossdevice_gpu_programs)
  get_property(tests GLOBAL PROPERTY CROSSDEVICE_GPU_TESTS)
  set(lines "")
  foreach(name IN LISTS tests)
    string(APPEND lines "tests $<TARGET_FILE:${name}>\n")
  endforeach()
  set(others "")
  foreach(kind_and_name IN ITEMS "examples;example_cuda_stream" "examples;example_nccl_communicator" "examples;example_flat_gradients"
                                 "bench;bench_gpu_kernels" "bench;crossdevice-bench" "bench;crossdevice-doctor")
    list(GET kind_and_name 0 kind)
    list(GET kind_and_name 1 name)
    if(TARGET ${name})
      list(APPEND others ${name})
      string(APPEND lines "${kind} $<TARGET_FILE:${name}>\n")
    endif()
  endforeach()
  add_custom_target(gpu-programs DEPENDS ${tests} ${others})
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/gpu-programs.txt" CONTENT "${lines}")
endfunction()
