# SPDX-License-Identifier: Apache-2.0
# How each command of the guide is kept true, of its shell blocks and between its lines in backticks. One that is not here fails the test guide.complete,
# and so does one that the guide does not have.
#
#   run([[line]])               it is run as it stands, with the built programs in the PATH
#     AS [[command]]          this is run in its place: the same with small sizes where it names none, with numbers for its letters, with this host for
#                             several, with the built tree where it lies, with slurm/srun for Slurm's, or without a GPU
#     ALONE                   while no other test runs, since it looks at times
#     SAYS text...              what it prints has each of these once: a worker that takes itself for a job of its own says something else
#     MAKES file...             each of these is there then, and not empty; MAKES_JSON: and is JSON
#   run_with(PROGRAM [[line]] ...) the same where that program is installed, or that file is there, or that script (x.sh) ends with 0, else the test of this
#                             line is skipped
#   covered([[line]] FILE [[words]] [TEST name]) too long for a second time, or needs what no test has: a test, or a step of .ci/run, that does the same,
#                             and what it says there; TEST: this one of the test suite. A build that does not have it counts the line among those not run
#   not_run([[line]] WHY)       nobody runs it; guide.complete lists these
# Comments behind two blanks and a hash are no part of a line.

# What docs/launchers.md promises of two workers.
guide_says(docs/launchers.md "`rank 0 of 2: 3` and `rank 1 of 2: 3`")
set(rank_0 "rank 0 of 2: 3\n")
set(rank_1 "rank 1 of 2: 3\n")
set(ranks_of_4 "rank 0 of 4: 10\n" "rank 1 of 4: 10\n" "rank 2 of 4: 10\n" "rank 3 of 4: 10\n")
set(ranks_of_8 "rank 0 of 8: 36\n" "rank 1 of 8: 36\n" "rank 2 of 8: 36\n" "rank 3 of 8: 36\n" "rank 4 of 8: 36\n" "rank 5 of 8: 36\n" "rank 6 of 8: 36\n"
    "rank 7 of 8: 36\n")
# What crossdevice-train trains with.
set(data_set /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz)

# README.md
not_run([[git clone <this repository> crossdevice && cd crossdevice]] "what it fetches is what is tested")
covered([[./cmake/install-dependencies && cmake --workflow --preset demo]] .ci/run [[./cmake/install-dependencies && cmake --workflow --preset demo]])
covered([[./cmake/install-dependencies && cmake --workflow --preset test]] .ci/run [[./cmake/install-dependencies && cmake --workflow --preset test]])
guide_says(README.md "# prints 3 1.5 3\n")
# In a folder with README's program and its project, word by word.
if(CROSSDEVICE_INSTALL)
  run([[cmake --install build/release --prefix $HOME/xdev]] AS [[export HOME=$PWD && cp "$PROJECT"/main.cc "$PROJECT"/CMakeLists.txt .
cmake --install "$BUILD" --prefix $HOME/xdev]]
      MAKES xdev/bin/crossdevice-run xdev/include/crossdevice/crossdevice.h)
  run([[cmake -G Ninja -B build -DCMAKE_PREFIX_PATH=$HOME/xdev && cmake --build build && build/my_trainer]] SAYS "3 1.5 3\n")
  run([[export PATH=$HOME/xdev/bin:$PATH]] AS [[export PATH=$HOME/xdev/bin:$PATH
command -v crossdevice-run
command -v crossdevice-doctor
command -v crossdevice-bench
command -v crossdevice-train]]
      SAYS /xdev/bin/crossdevice-run /xdev/bin/crossdevice-doctor /xdev/bin/crossdevice-bench /xdev/bin/crossdevice-train)
  set(without_cmake [[g++ -std=c++20 main.cc $(pkg-config --cflags --libs crossdevice) -Wl,-rpath,$HOME/xdev/lib -o my_trainer && ./my_trainer]])
  run([[export PKG_CONFIG_PATH=$HOME/xdev/lib/pkgconfig]])
  run("${without_cmake}" AS "rm my_trainer && ${without_cmake}" SAYS "3 1.5 3\n")
else()
  foreach(line IN ITEMS [[cmake --install build/release --prefix $HOME/xdev]]
                        [[cmake -G Ninja -B build -DCMAKE_PREFIX_PATH=$HOME/xdev && cmake --build build && build/my_trainer]] [[export PATH=$HOME/xdev/bin:$PATH]]
                        [[export PKG_CONFIG_PATH=$HOME/xdev/lib/pkgconfig]]
                        [[g++ -std=c++20 main.cc $(pkg-config --cflags --libs crossdevice) -Wl,-rpath,$HOME/xdev/lib -o my_trainer && ./my_trainer]])
    not_run("${line}" "this build installs nothing (CROSSDEVICE_INSTALL)")
  endforeach()
endif()
run_with(doxygen [[cmake --build build/release --target docs]] AS [[cmake --build "$BUILD" --target docs && test -s "$BUILD"/reference/html/index.html]])
run_with(${data_set} [[crossdevice-run -n 4 -- crossdevice-train]] AS [[crossdevice-run -n 4 -- crossdevice-train --epochs 1 --train-images 6000]]
         SAYS "[0] 4 replicas on [CPU:0] of each of 4 workers" ", the same on every replica\n" "[0] test accuracy ")
run([[crossdevice-run -n 4 -- ./my_trainer --its-own-options]] SAYS "[0] rank 0 of 4: 10\n" "[1] rank 1 of 4: 10\n" "[2] rank 2 of 4: 10\n" "[3] rank 3 of 4: 10\n")
run([[crossdevice-run --hosts node1:4,node2:4 -- ./my_trainer]]
    AS [[CROSSDEVICE_RUN_SHELL=$GUIDE/other_machine crossdevice-run --hosts 127.0.0.2:4,127.0.0.3:4 -- ./my_trainer]] SAYS ${ranks_of_8})
run([[crossdevice-bench --workers 2]] AS [[crossdevice-bench --workers 2 -e 64K -n 5]] SAYS "# 2 workers on 1 host" "# Wrong values         : 0 OK\n")
run([[CROSSDEVICE_TRACE=step.json ./my_trainer]] SAYS "rank 0 of 1: 1\n" MAKES_JSON step.json)
run([[crossdevice-run -n 4 --trace job.json -- ./my_trainer]] SAYS "rank 0 of 4: 10\n" "rank 3 of 4: 10\n" MAKES_JSON job.json)
if(CROSSDEVICE_INSTALL)
  run_with(dpkg-shlibdeps [[cpack -G DEB]] AS [[cpack -G DEB --config "$BUILD"/CPackConfig.cmake && cp crossdevice_*.deb package.deb]] MAKES package.deb)
else()
  not_run([[cpack -G DEB]] "this build installs nothing (CROSSDEVICE_INSTALL)")
endif()
not_run([[bash .ci/run]] "the test suite is one of its steps")
covered([[bench/record]] tests/bench/record_smoke.cmake [["${RECORD}" --quick]] TEST record.quick) # bench/results has what it measures
covered([[bench/predictions]] tests/bench/CMakeLists.txt [["${PROJECT_SOURCE_DIR}/bench/predictions" --quick]] TEST predictions.quick) # bench/results has what it measures

# docs/workers.md
run_with(${data_set} [[crossdevice-run -n 4 --keep-going -- crossdevice-train --elastic]]
         AS [[crossdevice-run -n 4 --keep-going -- crossdevice-train --elastic --epochs 1 --train-images 6000]] SAYS ", the same on every replica\n")
run_with(${CMAKE_CURRENT_LIST_DIR}/shaped_links.sh [[crossdevice-run -n 4 --netns 2 --rate 1gbit -- ./my_trainer]] SAYS ${ranks_of_4})
run([[crossdevice-bench --workers 2 --foreign]] AS [[crossdevice-bench --workers 2 --foreign -e 64K -n 5]]
    SAYS "# memory that is not from the pool\n" "# Wrong values         : 0 OK\n")
# Which one is the fastest is the machine's.
run_with(${CMAKE_CURRENT_LIST_DIR}/shaped_links.sh [[crossdevice-bench --workers 4 --netns 4 --explain]]
         AS [[crossdevice-bench --workers 4 --netns 4 --explain -b 64M -e 64M]] SAYS "  64 MiB  " " us expected (" ring rechd shuffle)
run([[crossdevice-bench --workers N --explain]] AS [[crossdevice-bench --workers 3 --explain]] SAYS "     8 B  slots of shared memory" "  64 MiB  direct reduction in shared memory")
run([[crossdevice-run --hosts node1:4,node2:4]]
    AS [[CROSSDEVICE_RUN_SHELL=$GUIDE/other_machine crossdevice-run --hosts 127.0.0.2:4,127.0.0.3:4 -- ./my_trainer]] SAYS ${ranks_of_8})

# docs/launchers.md
run([[crossdevice-run -n 2 -- ./my_trainer]] SAYS "${rank_0}" "${rank_1}")
run_with(torchrun [[torchrun --nproc-per-node=2 --no-python ./my_trainer]] SAYS "${rank_0}" "${rank_1}")
run_with(mpirun.openmpi [[mpirun.openmpi -n 2 ./my_trainer]] SAYS "${rank_0}" "${rank_1}")
run_with(mpirun.mpich [[CROSSDEVICE_CHIEF_ADDRESS=127.0.0.1:29511 mpirun.mpich -n 2 ./my_trainer]] SAYS "${rank_0}" "${rank_1}")
run([[srun -n 2 ./my_trainer]] AS [[PATH=$GUIDE/slurm:$PATH srun -n 2 ./my_trainer]] SAYS "${rank_0}" "${rank_1}")
run([[cluster='{"worker": ["127.0.0.1:29521", "127.0.0.1:29522"]}']])
run([[TF_CONFIG='{"cluster": '$cluster', "task": {"type": "worker", "index": 1}}' ./my_trainer &]] SAYS "${rank_1}")
run([[TF_CONFIG='{"cluster": '$cluster', "task": {"type": "worker", "index": 0}}' ./my_trainer]] SAYS "${rank_0}")
run([[CROSSDEVICE_RANK=1 CROSSDEVICE_NUM_WORKERS=2 CROSSDEVICE_CHIEF_ADDRESS=127.0.0.1:29531 ./my_trainer &]] SAYS "${rank_1}")
run([[CROSSDEVICE_RANK=0 CROSSDEVICE_NUM_WORKERS=2 CROSSDEVICE_CHIEF_ADDRESS=127.0.0.1:29531 ./my_trainer]] SAYS "${rank_0}")
run([[wait $!]])
run([[PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=127.0.0.1 PET_MASTER_PORT=29541 ./my_trainer &]] SAYS "${rank_1}")
run([[PET_NNODES=2 PET_NODE_RANK=0 PET_MASTER_ADDR=127.0.0.1 PET_MASTER_PORT=29541 ./my_trainer]] SAYS "${rank_0}")
run([[(umask 077 && head -c 32 /dev/urandom | base64 > job.secret)]] MAKES job.secret)
run([[export CROSSDEVICE_SECRET_FILE=$PWD/job.secret]])
not_run([[export CROSSDEVICE_LAUNCHER=openmpi]] "where Slurm has started Open MPI's daemons; what it chooses is tested in tests/comm/detect_cluster_resolver_test.cc")
# Two hosts that are one: the first torchrun goes on beside the second, and ends with it.
run_with(torchrun [[torchrun --nnodes=2 --node-rank=0 --nproc-per-node=2 --master-addr=node1 --master-port=29500 --no-python ./my_trainer]]
         AS [[CROSSDEVICE_HOST_ID=node1 timeout 100 \
  torchrun --nnodes=2 --node-rank=0 --nproc-per-node=2 --master-addr=127.0.0.1 --master-port=29500 --no-python ./my_trainer &]]
         SAYS "rank 0 of 4: 10\n" "rank 1 of 4: 10\n")
run_with(torchrun [[torchrun --nnodes=2 --node-rank=1 --nproc-per-node=2 --master-addr=node1 --master-port=29500 --no-python ./my_trainer]]
         AS [[CROSSDEVICE_HOST_ID=node2 timeout 100 \
  torchrun --nnodes=2 --node-rank=1 --nproc-per-node=2 --master-addr=127.0.0.1 --master-port=29500 --no-python ./my_trainer
wait $!]]
         SAYS "rank 2 of 4: 10\n" "rank 3 of 4: 10\n")
run_with(mpiexec.hydra [[CROSSDEVICE_CHIEF_ADDRESS=node1:29512 mpiexec.hydra -n 4 -ppn 2 -hosts node1,node2 ./my_trainer]]
         AS [[CROSSDEVICE_CHIEF_ADDRESS=127.0.0.1:29512 mpiexec.hydra -n 4 -ppn 2 -hosts localhost,127.0.0.1 ./my_trainer]]
         SAYS ${ranks_of_4})
run([[srun --nodes=2 --ntasks-per-node=2 ./my_trainer]] AS [[PATH=$GUIDE/slurm:$PATH srun --nodes=2 --ntasks-per-node=2 ./my_trainer]] SAYS ${ranks_of_4})
# Without -x the workers have no secret: other_machine, in the place of ssh, passes nothing on by itself.
run_with(mpirun.openmpi [[mpirun.openmpi -n 4 -H node1:2,node2:2 -x CROSSDEVICE_SECRET_FILE ./my_trainer]]
         AS [[(umask 077 && head -c 32 /dev/urandom | base64 > job.secret)
export CROSSDEVICE_SECRET_FILE=$PWD/job.secret OMPI_MCA_plm_rsh_agent=$GUIDE/other_machine
mpirun.openmpi -n 4 -H node1:2,node2:2 -x CROSSDEVICE_SECRET_FILE ./my_trainer]]
         SAYS ${ranks_of_4})
run([[crossdevice-run --hosts node1:2,node2:2 -- ./my_trainer]]
    AS [[env -u CROSSDEVICE_SECRET_FILE CROSSDEVICE_RUN_SHELL=$GUIDE/other_machine crossdevice-run --hosts 127.0.0.2:2,127.0.0.3:2 -- ./my_trainer]]
    SAYS ${ranks_of_4})

# docs/observing.md
run_with(mpirun.openmpi [[CROSSDEVICE_TRACE=t.%p.json mpirun.openmpi -n 2 ./my_trainer]] SAYS "${rank_0}" "${rank_1}")
run_with(mpirun.openmpi [[crossdevice-run --merge-trace all.json t.*.json]] MAKES_JSON all.json) # what the line above it leaves

# docs/troubleshooting.md, docs/extending.md, docs/gpus.md
run([[crossdevice-doctor]] SAYS "All that is required works.")
run([[crossdevice-doctor --json --only launcher,network]] SAYS "\"healthy\": true" "\"name\": \"launcher\"" "\"name\": \"network\"")
not_run([[ulimit -n]] "says how many descriptors the shell's programs may have")
not_run([[ssh node2 true]] "needs another machine; what goes over ssh is run over other_machine")
not_run([[crossdevice-bench --devices GPU:0,GPU:1]] "needs two GPUs; what it measures is tested over emulated ones in tests/bench/measure_gpu_test.cc")

# docs/testing.md
covered([[cmake --workflow --preset test]] .ci/run [[cmake --workflow --preset test]])
not_run([[cmake --workflow --preset full]] "takes hours: every GPU's code, and everything long")
# Three seconds, and what then still runs. Its other runs, of fixed numbers of faults, are in tests/chaos.
run([[bin/campaign --minutes N --seed S]] AS [[bin/campaign --minutes 0.05 --seed 20 --jobs 4 --max-workers 4]] SAYS " faults, 0 violations\n" ALONE)
# In so few calls the caches still fill, for which there is some room.
run([[bin/soak]] AS [[bin/soak --calls 20000 --mixed 1500 --slack-mib 16]] SAYS "rank 0: 20000 small calls in " "rank 1: 1500 mixed calls in ")
not_run([[./cmake/gpu-bundle && build/gpu-bundle/bundle/run]] "builds everything once more, and needs a GPU to say more than why each test is skipped")
not_run([[CROSSDEVICE_CUDA_ARCHITECTURES=80-real ./cmake/gpu-bundle]] "builds everything once more")
# The skip, also where there is a GPU: there each of these tests is run by itself.
not_run([[ctest -R chaos]] "they are tests of this suite")
run([[ctest --preset release -L gpu]] AS [[CUDA_VISIBLE_DEVICES= ctest --test-dir "$BUILD/tests" -L gpu]]
    SAYS "- gpu_cuda_api_test (Skipped)" "- gpu_kernels_test (Skipped)" "100% tests passed, 0 tests failed")
if(CROSSDEVICE_BUILD_BENCH)
  run([[bin/bench_gpu_kernels]] AS [[CUDA_VISIBLE_DEVICES= bin/bench_gpu_kernels]] SAYS "no GPU: ")
else()
  not_run([[bin/bench_gpu_kernels]] "this build is without benchmarks (CROSSDEVICE_BUILD_BENCH)")
endif()
not_run([[cmake/install-dependencies --with-peers]] "needs a package registry")
covered([[cmake --preset release && ninja -C build/release peers]] tests/bench/CMakeLists.txt [["${PROJECT_BINARY_DIR}" --target peers]] TEST peers.build)
not_run([[bench/peers/make-environment ~/peers]] "fetches some gigabytes")
covered([[bench/compare --environment ~/peers]] tests/bench/CMakeLists.txt [[bench/compare" --quick]] TEST compare.quick) # without Python's peers
