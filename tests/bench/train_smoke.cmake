# SPDX-License-Identifier: Apache-2.0
# Runs crossdevice-train for one epoch on a part of the data set: it must learn, repeat itself to the bit, and fail with clear words.
# On workers it must reach the weights of one process.
#   cmake -DPROGRAM=path -DRUN=path of crossdevice-run -DWORK=directory -P train_smoke.cmake
include("${CMAKE_CURRENT_LIST_DIR}/smoke.cmake")

file(MAKE_DIRECTORY "${WORK}")
run_program(EXIT 3 SAYS "apt-get install dataset-fashion-mnist" "--data" COMMAND "${PROGRAM}" --data "${WORK}")
run_program(EXIT 2 SAYS "crossdevice-train: GPU:99" COMMAND "${PROGRAM}" --devices GPU:99)
run_program(EXIT 2 SAYS "expected one of" COMMAND "${PROGRAM}" --cross-device-ops magic)
run_program(EXIT 2 SAYS "--min-workers needs --elastic" COMMAND "${PROGRAM}" --min-workers 2)
run_program(EXIT 0 SAYS "Exit codes" COMMAND "${PROGRAM}" --help)

if(NOT EXISTS "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
  message("SKIPPED: the package dataset-fashion-mnist is not installed")
  return()
endif()

# A network that has learnt nothing is right for one image in ten.
set(lowest_accuracy 72)
set(weights "")
foreach(repetition IN ITEMS 1 2)
  run_program(EXIT 0 OUTPUT output SAYS "epoch 1/1: loss" "compute" "communication" "hidden"
              COMMAND "${PROGRAM}" --epochs 1 --train-images 6000 --batch-size 100 --deterministic)
  if(NOT output MATCHES "test accuracy ([0-9]+\\.[0-9]) %\n$")
    message(FATAL_ERROR "the last line is not 'test accuracy NN.N %':\n${output}")
  endif()
  if(CMAKE_MATCH_1 LESS lowest_accuracy)
    message(FATAL_ERROR "test accuracy ${CMAKE_MATCH_1} %, expected at least ${lowest_accuracy} %")
  endif()
  string(REGEX MATCH "weights [0-9a-f]+" checksum "${output}")
  list(APPEND weights "${checksum}")
endforeach()
list(REMOVE_DUPLICATES weights)
list(LENGTH weights num_different)
if(NOT num_different EQUAL 1)
  message(FATAL_ERROR "two runs with --deterministic ended with different weights: ${weights}")
endif()

# The same four replicas as processes, in two ways; two on each worker round otherwise where they are added first.
foreach(workers IN ITEMS 4 2)
  math(EXPR devices "4 / ${workers}")
  set(list "CPU:0")
  set(reproducible --deterministic)
  if(devices EQUAL 2)
    set(list "CPU:0,CPU:1")
    set(reproducible --grouping-independent)
  endif()
  run_program(EXIT 0 OUTPUT output SAYS "4 replicas on" "of each of ${workers} workers" "hidden"
              COMMAND "${RUN}" -n ${workers} -- "${PROGRAM}" --devices "${list}" --epochs 1 --train-images 6000 --batch-size 100 ${reproducible})
  if(NOT output MATCHES "weights [0-9a-f]+, the same on every replica")
    message(FATAL_ERROR "${workers} workers do not tell their weights:\n${output}")
  endif()
  if(NOT output MATCHES "${weights}, ")
    message(FATAL_ERROR "${workers} workers ended with other weights than one process, '${weights}':\n${output}")
  endif()
  if(output MATCHES "\\[[1-9]\\]")
    message(FATAL_ERROR "a worker that is not the chief reports:\n${output}")
  endif()
endforeach()
