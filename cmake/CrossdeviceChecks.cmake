# SPDX-License-Identifier: Apache-2.0
# One command each: format (rewrites), format-check, lint (clang-tidy) and check (everything quick that a script can see).
# The formatter's and the linter's version is fixed, because every version has its own taste: 14, as in Debian 12.
set(CROSSDEVICE_CHECKS layers sizes house_words room_signs)
set(CROSSDEVICE_CLANG_TOOLS_VERSION 14)

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

# crossdevice_tool(VARIABLE name): name-14, or name if that is version 14.
function(crossdevice_tool variable name)
  find_program(${variable} NAMES ${name}-${CROSSDEVICE_CLANG_TOOLS_VERSION} ${name})
  mark_as_advanced(${variable})
endfunction()
crossdevice_tool(CROSSDEVICE_CLANG_FORMAT clang-format)
crossdevice_tool(CROSSDEVICE_CLANG_TIDY clang-tidy)
crossdevice_tool(CROSSDEVICE_CLANG clang++)
find_program(CROSSDEVICE_PYTHON NAMES python3)
mark_as_advanced(CROSSDEVICE_PYTHON)

foreach(mode IN ITEMS format format-check)
  add_custom_target(
    ${mode}
    COMMAND "${CMAKE_COMMAND}" -DROOT=${PROJECT_SOURCE_DIR} -DMODE=${mode} -DCLANG_FORMAT=${CROSSDEVICE_CLANG_FORMAT}
            -DVERSION=${CROSSDEVICE_CLANG_TOOLS_VERSION} -P "${PROJECT_SOURCE_DIR}/cmake/checks/run_clang_format.cmake"
    VERBATIM)
endforeach()

add_custom_target(
  lint
  COMMAND "${CROSSDEVICE_PYTHON}" "${PROJECT_SOURCE_DIR}/cmake/checks/run_clang_tidy.py" --root "${PROJECT_SOURCE_DIR}" --build "${PROJECT_BINARY_DIR}"
          --clang-tidy "${CROSSDEVICE_CLANG_TIDY}" --clang "${CROSSDEVICE_CLANG}" --version ${CROSSDEVICE_CLANG_TOOLS_VERSION}
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  USES_TERMINAL VERBATIM)

add_custom_target(check)
foreach(name IN LISTS CROSSDEVICE_CHECKS)
  add_custom_command(
    TARGET check POST_BUILD
    COMMAND "${CMAKE_COMMAND}" -DROOT=${PROJECT_SOURCE_DIR} -P "${PROJECT_SOURCE_DIR}/cmake/checks/check_${name}.cmake" VERBATIM)
endforeach()

# Registers the checks as tests; called where the tests are.
function(crossdevice_add_check_tests)
  foreach(name IN LISTS CROSSDEVICE_CHECKS)
    add_test(NAME check.${name} COMMAND "${CMAKE_COMMAND}" -DROOT=${PROJECT_SOURCE_DIR} -P
                                        "${PROJECT_SOURCE_DIR}/cmake/checks/check_${name}.cmake")
    set_tests_properties(check.${name} PROPERTIES LABELS "unit;check")
  endforeach()
  if(CROSSDEVICE_PYTHON AND CROSSDEVICE_CLANG_TIDY AND CROSSDEVICE_CLANG)
    add_test(NAME check.lint_sees_all
             COMMAND "${CROSSDEVICE_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/checks/run_clang_tidy_test.py"
                     "${PROJECT_SOURCE_DIR}/cmake/checks/run_clang_tidy.py" "${CROSSDEVICE_CLANG_TIDY}" "${CROSSDEVICE_CLANG}"
                     ${CROSSDEVICE_CLANG_TOOLS_VERSION})
    set_tests_properties(check.lint_sees_all PROPERTIES LABELS "unit;check" TIMEOUT 60 SKIP_REGULAR_EXPRESSION "SKIPPED: ")
  endif()
  if(BUILD_SHARED_LIBS AND NOT CROSSDEVICE_SANITIZE)
    add_test(NAME check.symbols COMMAND "${CMAKE_COMMAND}" -DNM=${CMAKE_NM} -DLIBRARY=$<TARGET_FILE:crossdevice> -P
                                        "${PROJECT_SOURCE_DIR}/cmake/checks/check_symbols.cmake")
    set_tests_properties(check.symbols PROPERTIES LABELS "unit;check")
  endif()
endfunction()
