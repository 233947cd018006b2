# SPDX-License-Identifier: Apache-2.0
# The target docs of a project whose machine has no doxygen: it fails, and says how to install it.
#   cmake -DROOT=folder -DWORK=folder -DGENERATOR=name -P docs_without_doxygen.cmake
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(WRITE "${WORK}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)\nproject(stranger LANGUAGES NONE)\nset(CROSSDEVICE_DOXYGEN \"\")\ninclude([==[${ROOT}/cmake/CrossdeviceReference.cmake]==])\n")
execute_process(COMMAND "${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${WORK}" -B "${WORK}/build" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/build" --target docs RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
message("${output}")
if(code EQUAL 0)
  message(FATAL_ERROR "the target docs succeeded without doxygen")
endif()
if(NOT output MATCHES "install doxygen: cmake/install-dependencies --with-tools")
  message(FATAL_ERROR "the target docs does not say how to install doxygen")
endif()
