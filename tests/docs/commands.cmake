# SPDX-License-Identifier: Apache-2.0
# How each line of a shell block of the guide is kept true. A line that is not here fails the test guide.complete.
#
#   run([[line]])              it is run as it stands, with the built programs in the PATH
#   run_with(PROGRAM [[line]]) the same where that program is installed, else it is left out, which the test says
#   covered([[line]] TEST)     too long, or needs what no test has: a file of the test suite that does the same
#   not_run([[line]] WHY)      nothing in the test suite does the same
# Comments behind two blanks and a hash are no part of a line.

covered([[git clone <this repository> crossdevice && cd crossdevice]] .ci/run)
covered([[./cmake/install-dependencies && cmake --workflow --preset demo]] tests/bench/train_smoke.cmake) # one epoch, where the data set is there
covered([[./cmake/install-dependencies && cmake --workflow --preset test]] .ci/run)
covered([[crossdevice-run -n 4 -- crossdevice-train]] tests/bench/train_smoke.cmake)
covered([[crossdevice-run -n 4 --keep-going -- crossdevice-train --elastic]] tests/bench/elastic_training_test.cc)
run([[crossdevice-run -n 4 -- ./my_trainer --its-own-options]])
covered([[crossdevice-run --hosts node1:4,node2:4 -x LD_LIBRARY_PATH -- ./my_trainer]] tests/bench/remote_hosts_test.cc)
covered([[crossdevice-run -n 4 --netns 2 --rate 1gbit -- ./my_trainer]] tests/bench/network_namespaces_test.cc)
covered([[crossdevice-bench --workers 2]] tests/bench/bench_workers_test.cc) # with smaller sizes
run([[crossdevice-doctor]])
not_run([[cmake/install-dependencies --with-peers]] "needs a package registry")
covered([[cmake --preset release && ninja -C build/release peers]] tests/bench/CMakeLists.txt) # peers.build
not_run([[bench/peers/make-environment ~/peers]] "fetches some gigabytes")
covered([[bench/compare --environment ~/peers]] tests/bench/CMakeLists.txt) # compare.quick, without Python's peers

run([[CROSSDEVICE_TRACE=step.json ./my_trainer]])
run([[crossdevice-run -n 4 --trace job.json -- ./my_trainer]])
run([[crossdevice-run -n 2 -- ./my_trainer]])
run_with(torchrun [[torchrun --nproc-per-node=2 --no-python ./my_trainer]])
run_with(mpirun.openmpi [[mpirun.openmpi -n 2 ./my_trainer]])
run_with(mpirun.mpich [[CROSSDEVICE_CHIEF_ADDRESS=127.0.0.1:29511 mpirun.mpich -n 2 ./my_trainer]])
not_run([[srun -n 2 ./my_trainer]] "needs Slurm; the variables that it sets are read in tests/comm/launcher_cluster_resolvers_test.cc")
run([[cluster='{"worker": ["127.0.0.1:29521", "127.0.0.1:29522"]}']])
run([[TF_CONFIG='{"cluster": '$cluster', "task": {"type": "worker", "index": 1}}' ./my_trainer &]])
run([[TF_CONFIG='{"cluster": '$cluster', "task": {"type": "worker", "index": 0}}' ./my_trainer]])
run([[CROSSDEVICE_RANK=1 CROSSDEVICE_NUM_WORKERS=2 CROSSDEVICE_CHIEF_ADDRESS=127.0.0.1:29531 ./my_trainer &]])
run([[CROSSDEVICE_RANK=0 CROSSDEVICE_NUM_WORKERS=2 CROSSDEVICE_CHIEF_ADDRESS=127.0.0.1:29531 ./my_trainer]])
run([[wait]])
run([[(umask 077 && head -c 32 /dev/urandom | base64 > job.secret)]])
run([[CROSSDEVICE_SECRET_FILE=$PWD/job.secret crossdevice-run -n 2 -- ./my_trainer]])
not_run([[mpirun.openmpi -n 4 -H node1:2,node2:2 -x CROSSDEVICE_SECRET_FILE ./my_trainer]] "needs two hosts; on one mpirun is run, see above")
covered([[crossdevice-run --hosts node1:2,node2:2 -x LD_LIBRARY_PATH -- ./my_trainer]] tests/bench/remote_hosts_test.cc)

run([[crossdevice-doctor --json --only launcher,network]])
