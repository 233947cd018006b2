# SPDX-License-Identifier: Apache-2.0
# clang-tidy, as .clang-tidy says, on every source of the library and the headers it includes; FILES narrows it down to
# the sources whose path matches that regular expression.
cmake_minimum_required(VERSION 3.25)

foreach(tool IN ITEMS CLANG_TIDY RUN_CLANG_TIDY)
  if(NOT ${tool} OR NOT EXISTS "${${tool}}")
    message(FATAL_ERROR "${tool}: version ${VERSION} was not found: cmake/install-dependencies --with-tools installs it")
  endif()
endforeach()
execute_process(COMMAND "${CLANG_TIDY}" --version OUTPUT_VARIABLE version)
if(NOT version MATCHES "version ${VERSION}\\.")
  message(FATAL_ERROR "clang-tidy ${VERSION} is needed, ${CLANG_TIDY} is ${version}")
endif()
if(NOT EXISTS "${BUILD}/compile_commands.json")
  message(FATAL_ERROR "${BUILD}/compile_commands.json is missing: configure with CMAKE_EXPORT_COMPILE_COMMANDS=ON, as the presets do")
endif()
if(NOT FILES)
  set(FILES "${ROOT}/(src/.*|tests/odr/second_unit)\\.cc$") # the latter includes every public header
endif()
cmake_host_system_information(RESULT jobs QUERY NUMBER_OF_LOGICAL_CORES)
execute_process(COMMAND "${RUN_CLANG_TIDY}" -clang-tidy-binary "${CLANG_TIDY}" -p "${BUILD}" -quiet -j ${jobs} "${FILES}"
                WORKING_DIRECTORY "${ROOT}" RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "clang-tidy has findings")
endif()
