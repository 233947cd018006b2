# SPDX-License-Identifier: Apache-2.0
# How our own targets are compiled: warnings, visibility, sanitizers. Nothing here reaches a user's targets.

function(crossdevice_compile_options target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(
    ${target}
    PROPERTIES CXX_EXTENSIONS OFF
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               POSITION_INDEPENDENT_CODE ON)
  target_compile_options(
    ${target} PRIVATE -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
                      $<$<BOOL:${CROSSDEVICE_WERROR}>:-Werror>)
  if(CROSSDEVICE_SANITIZE)
    # -O1 keeps the instrumented suite quick; line tables are enough for its reports.
    target_compile_options(${target} PRIVATE -fsanitize=${CROSSDEVICE_SANITIZE} -fno-sanitize-recover=all
                                             -fno-omit-frame-pointer -O1 -g1)
    target_link_options(${target} PRIVATE -fsanitize=${CROSSDEVICE_SANITIZE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # Instrumentation hides facts from GCC's flow analysis, which then warns about code that is right.
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds)
      if(CROSSDEVICE_SANITIZE MATCHES "thread")
        target_compile_options(${target} PRIVATE -Wno-tsan)
      endif()
    endif()
  endif()
endfunction()

# crossdevice_include_bench(TARGET PRIVATE|PUBLIC): finds #include "collective/x.h" under bench, and nothing in angle brackets,
# for which a program there, such as bench/compare, would be a header of the standard library.
function(crossdevice_include_bench target scope)
  target_compile_options(${target} ${scope} "SHELL:-iquote \"${PROJECT_SOURCE_DIR}/bench\"")
endfunction()
