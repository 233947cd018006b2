# SPDX-License-Identifier: Apache-2.0
# What each piece of the guide's C++ is to have done. One that is not here fails the test guide.complete, and so does one that the guide does not have.
#
#   after([[words]] [[statements]])  the piece that has these words is followed by these statements, among its variables and those of surroundings.h;
#                                    expect... throws where something is not so
#     IN Surroundings                what surrounds it in place of Surroundings
#   prints([[words]] [[text]])       the program that has these words, with nobody to launch it, prints this and nothing else; a program that says so itself,
#                                    in a comment behind std::cout, needs no line

# README.md
after([[cd::MirroredStrategy strategy(]]
      [[for (const Model& model : models) expect(model.weight == 1.0F - 2.0F, "the mean of both batches on both replicas");
    expect(loss.span<const float>()[0] == -1.0F, "the mean of the losses");]])
after([[ops.batch_reduce_into(ReduceOp::MEAN, gradients, {]] [[expect_gradients(ReduceOp::MEAN, own_replicas());]])
after([[cd::GradientBucketer bucketer(]] # apply() has looked at each gradient
      [[std::sort(applied.begin(), applied.end());
    expect(applied == std::vector<std::size_t>{0, 1, 2}, "every gradient is applied once");]])
after([[cd::MultiWorkerMirroredStrategy strategy(]] # train() has looked at the sum
      [[expect(num_trained > 0 && strategy.num_replicas_in_sync() >= 4, "replicas of four workers have trained");]])
after([[cd::CollectiveAllReduce ops({"CPU:0"}, /*group_size=*/cluster->num_workers(), {.bytes_per_pack]]
      [[expect_reduced(gradient.span<const float>(), ReduceOp::SUM, 0, {0, 1, 2, 3});
    expect((half != nullptr) == (my_number % 2 == 0), "ranks 0 and 2 are members");
    expect(half == nullptr || (half->num_workers() == 2 && half->rank() == my_number / 2), "a cluster of two");]])
after([[} catch (const cd::OpError& error) {]] [[expect_survivors_reduce();]] IN OneLeaves)
after([[cd::NcclAllReduce nccl(]] [[expect_means();]])

# docs/workers.md
after([[cd::Communicator world(cluster);]]
      [[expect_reduced(a, ReduceOp::SUM, 0, {0, 1, 2, 3});
    expect_reduced(shard, ReduceOp::SUM, 0, {0, 1, 2, 3}, 1000 * static_cast<std::size_t>(my_number));]])
after([[cd::WorkerIdentity self = resolver->identity();]]
      [[expect(self.rank == cluster->rank() && self.num_workers == 4 && self.launcher == "CROSSDEVICE_*", "who crossdevice-run says it is");]])
after([[cd::MultiWorkerAllReduce in_graph(]]
      [[expect_reduced(a, ReduceOp::SUM, 0, {my_number, my_number + 1});
    expect_reduced(b, ReduceOp::SUM, 0, {my_number, my_number + 1});]])

# docs/launchers.md
prints([[rank " << cluster->rank()]] [[rank 0 of 1: 1]])
after([[cd::SimpleClusterResolver resolver(]]
      [[expect(cluster->rank() == my_number && cluster->num_workers() == 4, "a cluster of the four that the list has");]])
after([[cd::CallbackClusterResolver resolver(]]
      [[expect(rank == my_number && num_workers > 1, "MPI has the ranks of who has started it");
    expect(cluster->rank() == rank && cluster->num_workers() == num_workers, "a cluster of MPI's ranks");]])

# docs/observing.md
after([[cd::TraceSpan span("backward");]]
      [[expect(calls == 1, "the call before is counted");
    expect(cd::counters_text().find("crossdevice_operations_total") != std::string::npos, "the text has the counter");]]
      IN HaveReduced)

# docs/extending.md
after([[class CountingOps]] [[expect_gradients(ReduceOp::SUM, own_replicas());]])
guide_says(docs/extending.md [["[0, 8) reduce 0 <- 0 1 2", "[0, 8) copy 1 <- 0", "[0, 8) copy 2 <- 0"]])
after([[cd::Schedule star{]]
      [[require_all_reduce(star);
    expect(star.to_string() == "[0, 8) reduce 0 <- 0 1 2\n[0, 8) copy 1 <- 0\n[0, 8) copy 2 <- 0\n", "the schedule's text");]])
