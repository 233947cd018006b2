# SPDX-License-Identifier: Apache-2.0
# Runs crossdevice-bench with tiny settings and looks at everything that leaves it: exit code, table, JSON, error messages.
#   cmake -DPROGRAM=path -DWORK=directory -P bench_smoke.cmake
include("${CMAKE_CURRENT_LIST_DIR}/smoke.cmake")

set(fields op ops algorithm devices workers hosts namespaces rate memory size_bytes dtype redop in_place time_us_median time_us_p10 time_us_p99 raw_nccl_us_median algbw_gbs
           busbw_gbs wrong traffic_gbs limit limit_gbs percent_of_limit)
list(LENGTH fields num_fields)

# Every row of the file has exactly the fields, and no wrong element; the file has `expected` rows.
function(check_json file expected)
  file(READ "${file}" text)
  string(JSON num_rows LENGTH "${text}")
  if(NOT num_rows EQUAL expected)
    message(FATAL_ERROR "${file} has ${num_rows} rows, expected ${expected}")
  endif()
  math(EXPR last "${num_rows} - 1")
  foreach(row RANGE ${last})
    string(JSON length LENGTH "${text}" ${row})
    if(NOT length EQUAL num_fields)
      message(FATAL_ERROR "row ${row} of ${file} has ${length} fields, expected ${num_fields}")
    endif()
    foreach(field IN LISTS fields)
      string(JSON ${field} GET "${text}" ${row} ${field}) # stops when the field is not there
    endforeach()
    if(NOT wrong EQUAL 0 OR limit STREQUAL "" OR NOT time_us_median GREATER 0 OR time_us_p10 GREATER time_us_median
       OR time_us_median GREATER time_us_p99)
      message(FATAL_ERROR "row ${row} of ${file} cannot be right: wrong ${wrong}, limit '${limit}', times ${time_us_p10} "
                          "${time_us_median} ${time_us_p99}")
    endif()
  endforeach()
endfunction()

file(MAKE_DIRECTORY "${WORK}")
set(json "${WORK}/rows.json")
set(quick -n 5 -w 1 -g 3 -c 1 --json "${json}")

foreach(op IN ITEMS all_reduce batch_reduce reduce broadcast gather)
  file(REMOVE "${json}")
  run_program(EXIT 0 SAYS "out-of-place" "busbw" "#wrong" "Wrong values         : 0 OK"
              COMMAND "${PROGRAM}" --op ${op} -b 8 -e 64K -f 64 ${quick})
  if(op STREQUAL "gather")
    check_json("${json}" 3)
  else()
    check_json("${json}" 6)
  endif()
endforeach()

foreach(ops IN ITEMS reduction_to_one_device hierarchical_copy nccl)
  run_program(EXIT 0 SAYS "Wrong values         : 0 OK"
              COMMAND "${PROGRAM}" --ops ${ops} --num-packs 2 --bytes-per-pack 4K --deterministic --op batch_reduce -o all -d bfloat16
                      -b 32K -e 32K ${quick})
  check_json("${json}" 10)
endforeach()

run_program(EXIT 0 SAYS "Wrong values         : 0 OK"
            COMMAND "${PROGRAM}" --ops multi_worker --all-reduce-spec "xring#2:16k:pscpu/pscpu#2"
                    --devices /job:worker/task:0/CPU:0,/job:worker/task:0/CPU:1,/job:worker/task:1/CPU:0
                    -o all -d float -b 8 -e 64K -f 64 -n 5 -w 1)

file(WRITE "${WORK}/small.csv" "name,shape,numel\nweights,30x20,600\nbiases,20,20\nscale,,1\n")
run_program(EXIT 0 SAYS "batch of 3 tensors / one flat buffer" COMMAND "${PROGRAM}" --gradients "${WORK}/small.csv" ${quick})
check_json("${json}" 4)
file(READ "${json}" text)
string(JSON limit GET "${text}" 2 limit)
if(NOT limit STREQUAL "flat_buffer")
  message(FATAL_ERROR "the batch is held against '${limit}', expected flat_buffer")
endif()

run_program(EXIT 0 SAYS "Wrong values         : 0 OK" COMMAND "${CMAKE_COMMAND}" -E env CROSSDEVICE_CPU_DEVICES=2 "${PROGRAM}" -b 8 -e 8 -n 1)
run_program(EXIT 0 SAYS "--minbytes" "Exit codes" COMMAND "${PROGRAM}" --help)
run_program(EXIT 2 SAYS "crossdevice-bench: GPU:99" COMMAND "${PROGRAM}" --devices CPU:0,GPU:99)
run_program(EXIT 2 SAYS "expected one of" COMMAND "${PROGRAM}" --op scatter)
run_program(EXIT 2 SAYS "cannot open" COMMAND "${PROGRAM}" --gradients "${WORK}/nothing.csv")
run_program(EXIT 2 SAYS "cannot write" COMMAND "${PROGRAM}" -b 8 -e 8 --json "${WORK}/nothing/rows.json")
run_program(EXIT 2 SAYS "SUM of bool" COMMAND "${PROGRAM}" -d bool)
