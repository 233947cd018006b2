# SPDX-License-Identifier: Apache-2.0
# Runs a block's commands in an empty folder that has ./my_trainer; the built programs are in the PATH.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
file(CREATE_LINK "${TRAINER}" "${WORK}/my_trainer" SYMBOLIC)
set(ENV{PATH} "${PROGRAMS}:$ENV{PATH}")
# Tests may run as root, and with more workers than cores.
foreach(variable IN ITEMS OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe)
  set(ENV{${variable}} 1)
endforeach()
execute_process(COMMAND sh -eux "${SCRIPT}" WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE errors)
message("${output}${errors}")
if(NOT code EQUAL 0)
  message(FATAL_ERROR "the commands ended with ${code}")
endif()
