// SPDX-License-Identifier: Apache-2.0
/// Workers are threads. What processes and failures ask of it is tested with the engines that use it.
#include "crossdevice/comm/shared_memory_group.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/memory_file.h"

#include "comm/detail/foreign_file.h"
#include "device/detail/memory_segment.h"
#include "support/log_keeper.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using detail::Descriptor;
using detail::MemorySegment;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::LogKeeper;
using testing::no_errors;
using testing::run_clusters;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

TEST(SharedMemoryGroupTest, WhoWaitsLooksAround) {
  EXPECT_EQ(run_clusters(3,
                         [](const std::shared_ptr<Cluster>& cluster) {
                           SharedMemoryGroup group(cluster);
                           int num_looks = 0;
                           group.while_waiting([&] {
                             if (++num_looks == 3) throw std::runtime_error("look there");
                           });
                           if (cluster->rank() == 1) {
                             cluster->barrier();  // comes when the others have given up
                             group.announce({.kind = "test"}, 1);
                             EXPECT_THROW(group.await_announcements(soon()), DeadlineExceededError);
                             return;
                           }
                           group.announce({.kind = "test"}, 1);
                           // Rank 1 is waited for; who hears it second has looked less often.
                           EXPECT_ANY_THROW(group.await_announcements(soon()));
                           EXPECT_LE(num_looks, 3);
                           EXPECT_THROW(group.announce({.kind = "test"}, 2),
                                        FailedPreconditionError);
                           cluster->barrier();
                         }),
            no_errors(3));
}

TEST(SharedMemoryGroupTest, ALimitOnFileSizesRaisesNoSignal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit lowered = before;
  lowered.rlim_cur = rlim_t{256} << 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &lowered), 0);
  const std::vector<std::string> errors =
      run_clusters(2, [](const std::shared_ptr<Cluster>& cluster) {
        try {
          const SharedMemoryGroup group(cluster, std::size_t{1} << 20);
          ADD_FAILURE() << "its memory is larger than the limit";
        } catch (const ResourceExhaustedError& error) {
          EXPECT_STREQ(error.what(), "rank 0: no shared memory: File too large");
          ASSERT_EQ(error.culprits().size(), 1U);
          EXPECT_EQ(error.culprits()[0].rank, 0);
        }
      });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(errors, no_errors(2));
}

TEST(SharedMemoryGroupTest, AStallIsSpokenOf) {
  LogKeeper log;
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    // As the cluster's, so a subgroup's.
    SharedMemoryGroup group(cluster->subgroup({2, 1, 0}));
    if (cluster->rank() == 1) {
      EXPECT_TRUE(log.await("rank 0 still waits in test #7 for rank 1 (", soon()));
      EXPECT_TRUE(log.await("rank 2 still waits in test #7 for rank 1 (", soon()));
    }
    group.announce({.kind = "test"}, 7);
    group.await_announcements(soon());
    group.finish();
    group.await_ends(soon());
  };
  EXPECT_EQ(run_clusters(3, work, {.timeout_seconds = 60, .stall_warning_seconds = 0.02}),
            no_errors(3));
}

TEST(SharedMemoryGroupTest, MembersAreCalledAsTheGroupIsTold) {
  LogKeeper log;
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    if (cluster->rank() == 0) return;
    const std::vector<RankInfo> names = {cluster->worker(2), cluster->worker(1)};
    SharedMemoryGroup group(cluster->subgroup({2, 1}), 4096, names);
    group.announce({.kind = "test"}, 7);
    group.await_announcements(soon());
    group.finish();
    if (cluster->rank() == 1) {
      EXPECT_TRUE(log.await("rank 2 still waits in test #7 for rank 1 (", soon()));
      group.await_ends(soon());
      group.give_up("no more");
      return;
    }
    group.announce({.kind = "test"}, 7);
    try {
      group.await_announcements(soon());
      ADD_FAILURE() << "no error";
    } catch (const OpError& error) {
      ASSERT_EQ(error.culprits().size(), 1U) << error.what();
      EXPECT_EQ(error.culprits()[0].rank, 1) << error.what();
      EXPECT_NE(std::string(error.what()).find("rank 1 ("), std::string::npos) << error.what();
    }
  };
  const JoinOptions options{.timeout_seconds = 60, .stall_warning_seconds = 0.02};
  EXPECT_EQ(run_clusters(3, work, options), no_errors(3));
}

/// Who finds a member's memory gone knows of its death before the control plane says it; the others hear from there why that one has given up, and
/// not that it has.
TEST(SharedMemoryGroupTest, WhoseMemoryIsGoneIsNamedByAll) {
  std::latch have_seen{3};
  std::latch has_missed{1};
  std::latch have_heard{2};  // nobody else leaves before
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    SharedMemoryGroup group(cluster);
    group.announce({.kind = "test"}, 7);
    group.await_announcements(soon());
    have_seen.arrive_and_wait();
    if (cluster->rank() == 2) {
      has_missed.wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the news come late
      return;
    }
    try {
      if (cluster->rank() == 0) {
        const SharedLocation nowhere{
            .segment_id = 1, .segment_size_bytes = 4096, .segment_fd = 1'000'000};
        (void)group.map(2, nowhere, 1);
      } else {
        group.finish();
        group.await_ends(soon());
      }
      ADD_FAILURE() << "no error";
    } catch (const OpError& error) {
      if (cluster->rank() == 0) has_missed.count_down();
      EXPECT_EQ(error.code(), StatusCode::UNAVAILABLE) << error.what();
      EXPECT_TRUE(error.culprits().size() == 1 && error.culprits()[0].rank == 2) << error.what();
    }
    have_heard.arrive_and_wait();
  };
  EXPECT_EQ(run_clusters(3, work), no_errors(3));
}

/// What rank 1 is told when it maps `location` of rank 0, which lives and has given up at the end of the call, or not.
std::string error_of_mapping(const SharedLocation& location, bool has_given_up = true) {
  std::string text;
  std::latch is_announced{2};
  std::latch is_let_go{1};
  std::latch is_over{2};
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    SharedMemoryGroup group(cluster);
    group.announce({.kind = "test"}, 7);
    group.await_announcements(soon());
    is_announced.arrive_and_wait();
    if (cluster->rank() == 0) {
      if (has_given_up) {
        group.finish();
        EXPECT_THROW(group.await_ends(Deadline::after(std::chrono::milliseconds(20))),
                     DeadlineExceededError);
      }
      is_let_go.count_down();
    } else {
      is_let_go.wait();
      try {
        (void)group.map(0, location, 1);
      } catch (const OpError& error) {
        text = error.what();
      }
    }
    is_over.arrive_and_wait();
  };
  EXPECT_EQ(run_clusters(2, work), no_errors(2));
  return text;
}

/// A worker that was stopped finds, under the number of a segment that its owner has let go of, a file that it knows nothing of.
TEST(SharedMemoryGroupTest, OnlyTheAnnouncedSegmentIsMapped) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const auto segment = MemorySegment::map(kBytes, "crossdevice test");
  ASSERT_NE(segment, nullptr);
  if (segment->fd() < 0) GTEST_SKIP() << "this system gives no memfd";
  const SharedLocation announced{
      .segment_id = segment->id(), .segment_size_bytes = kBytes, .segment_fd = segment->fd()};
  EXPECT_EQ(error_of_mapping(announced), "");

  SharedLocation earlier = announced;
  --earlier.segment_id;  // as if this segment had got the descriptor of that one
  EXPECT_THAT(error_of_mapping(earlier),
              AllOf(HasSubstr("test #7: rank 0 ("), HasSubstr("has given up waiting for rank 1 ("),
                    HasSubstr("is another file now, which is left alone")));
  EXPECT_THAT(error_of_mapping(earlier, /*has_given_up=*/false),
              AllOf(HasSubstr("test #7: rank 0 ("), HasSubstr("is gone; "),
                    HasSubstr("is another file now, which is left alone")));

  SharedLocation longer = announced;
  longer.segment_size_bytes += 4096;
  EXPECT_THAT(error_of_mapping(longer), HasSubstr("it has another size than announced"));
}

TEST(SharedMemoryGroupTest, WhatIsNoSegmentIsNotMapped) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  // As if the number of the process, too, were another's.
  const detail::MemoryFileMark mark{.process = detail::memory_file_process() + 1, .file = 1};
  const Descriptor of_another_process(
      detail::make_memory_file(kBytes, detail::marked_name("crossdevice test", mark)));
  std::array<int, 2> ends{-1, -1};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Descriptor reading(ends[0]);
  const Descriptor writing(ends[1]);
  const Descriptor connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Descriptor counter(::eventfd(0, EFD_CLOEXEC));
  const Descriptor directory(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  SharedLocation location{.segment_id = 1, .segment_size_bytes = kBytes};
  for (const Descriptor* const each :
       {&of_another_process, &reading, &writing, &connection, &counter, &directory}) {
    location.segment_fd = each->get();
    ASSERT_GE(location.segment_fd, 0);
    EXPECT_THAT(error_of_mapping(location),
                AllOf(HasSubstr("has given up waiting for rank 1 ("),
                      HasSubstr("is another file now, which is left alone")));
  }
  location.segment_fd = 1'000'000;  // nothing
  EXPECT_THAT(error_of_mapping(location), AllOf(HasSubstr("has given up waiting for rank 1 ("),
                                                HasSubstr("it is not there any more")));
}

/// Rank 1 is stopped until its own time is over, too, and rank 0 has left the call.
void expect_that_the_late_one_names_itself(bool is_at_end) {
  std::latch is_announced{2};
  std::latch has_left{1};
  std::latch is_over{2};
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    SharedMemoryGroup group(cluster);
    if (is_at_end) {
      group.announce({.kind = "test"}, 7);
      group.await_announcements(soon());
      is_announced.arrive_and_wait();
    }
    const Deadline deadline = Deadline::after(std::chrono::milliseconds(20));
    if (cluster->rank() == 1) {
      has_left.wait();
      std::this_thread::sleep_until(deadline.moment());
    }
    try {
      if (is_at_end) {
        group.finish();
        group.await_ends(deadline);
      } else {
        group.announce({.kind = "test"}, 7);
        group.await_announcements(deadline);
      }
      ADD_FAILURE() << "no error";
    } catch (const DeadlineExceededError& error) {
      EXPECT_TRUE(error.culprits().size() == 1 && error.culprits()[0].rank == 1) << error.what();
      const std::string text = error.what();
      if (cluster->rank() == 0) {
        EXPECT_THAT(text, HasSubstr("test #7 timed out: waiting for rank 1 ("));
      } else {
        EXPECT_THAT(text, AllOf(HasSubstr("test #7 timed out: this worker, rank 1 ("),
                                HasSubstr(" came too late or was stopped: rank 0 ("),
                                HasSubstr(" had left the call")));
      }
    }
    if (cluster->rank() == 0) has_left.count_down();
    is_over.arrive_and_wait();
  };
  EXPECT_EQ(run_clusters(2, work), no_errors(2));
}

TEST(SharedMemoryGroupTest, WhoIsTooLateForTheOthersNamesItself) {
  expect_that_the_late_one_names_itself(/*is_at_end=*/false);
  expect_that_the_late_one_names_itself(/*is_at_end=*/true);
}

void expect_that_all_name(const std::exception& failure, StatusCode code) {
  std::latch have_ended{4};
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    SharedMemoryGroup group(cluster);
    group.announce({.kind = "test"}, 7);
    group.await_announcements(soon());
    if (cluster->rank() == 1) {
      group.fail_alone(failure);
      EXPECT_THROW(group.announce({.kind = "test"}, 8), FailedPreconditionError);
    } else {
      try {
        group.finish();
        group.await_ends(soon());
        ADD_FAILURE() << "no error";
      } catch (const OpError& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        EXPECT_TRUE(error.culprits().size() == 1 && error.culprits()[0].rank == 1) << error.what();
      }
    }
    have_ended.arrive_and_wait();
  };
  EXPECT_EQ(run_clusters(4, work), no_errors(4));
}

TEST(SharedMemoryGroupTest, WhoFailsAloneIsNamedByAll) {
  expect_that_all_name(ResourceExhaustedError("no memory"), StatusCode::ABORTED);
}

TEST(SharedMemoryGroupTest, WhoseOwnPartTakesTooLongIsNamedByAll) {
  expect_that_all_name(DeadlineExceededError("its part was too much"),
                       StatusCode::DEADLINE_EXCEEDED);
}

/// What the one that leaves has done is whole for the others; what it does not do any more ends their wait.
TEST(SharedMemoryGroupTest, WhoHasLeftIsWaitedForByNobody) {
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    const auto operation = [](SharedMemoryGroup& group) {
      group.announce({.kind = "test"}, 7);
      group.await_announcements(soon());
      group.finish();
      group.await_ends(soon());
    };
    std::optional<SharedMemoryGroup> group(std::in_place, cluster);
    for (int i = 0; i < 100; ++i) operation(*group);
    if (cluster->rank() == 1) {
      group.reset();
      cluster->barrier();  // it has left the group, not the job
      return;
    }
    try {
      operation(*group);
      ADD_FAILURE() << "no error";
    } catch (const UnavailableError& error) {
      EXPECT_NE(std::string(error.what()).find("is gone: it has left"), std::string::npos)
          << error.what();
      ASSERT_EQ(error.culprits().size(), 1U);
      EXPECT_EQ(error.culprits()[0].rank, 1);
    }
    EXPECT_FALSE(group->may_be_written() && cluster->num_workers() == 2);
    cluster->barrier();
  };
  for (const std::size_t n : {2UL, 3UL, 5UL}) EXPECT_EQ(run_clusters(n, work), no_errors(n));
}

TEST(SharedMemoryGroupTest, HeadsComeWithTheirAnnouncement) {
  const auto work = [](const std::shared_ptr<Cluster>& cluster) {
    SharedMemoryGroup group(cluster);
    for (std::uint64_t i = 0; i < 300; ++i) {
      const auto rank = static_cast<std::uint64_t>(group.rank());
      const std::uint64_t mine = 1000 * i + rank;
      std::memcpy(group.slot().data(), &mine, sizeof mine);
      const auto touches =
          i % 3 == 0 ? SharedMemoryGroup::Touches::MEMORY : SharedMemoryGroup::Touches::SLOTS;
      group.announce({.kind = "test", .fingerprint = i}, i, touches,
                     std::as_bytes(std::span<const std::uint64_t>(&mine, 1)));
      group.await_announcements(soon());
      for (int each = 0; each < group.num_workers(); ++each) {
        std::array<std::uint64_t, 2> theirs{};
        std::memcpy(&theirs[0], group.heads()[static_cast<std::size_t>(each)], sizeof mine);
        std::memcpy(&theirs[1], group.slot_of(each).data(), sizeof mine);
        const std::uint64_t expected = 1000 * i + static_cast<std::uint64_t>(each);
        ASSERT_EQ(theirs, (std::array<std::uint64_t, 2>{expected, expected}));
      }
    }
  };
  for (const std::size_t n : {1UL, 2UL, 3UL, 5UL}) EXPECT_EQ(run_clusters(n, work), no_errors(n));
}

TEST(SharedMemoryGroupTest, EveryByteOfAHeadComesAlong) {
  const auto byte_of = [](int rank, std::uint64_t round, std::size_t i) {
    return static_cast<std::byte>(7 * static_cast<std::size_t>(rank) + 3 * round + i + 1);
  };
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    SharedMemoryGroup group(cluster);
    std::uint64_t round = 0;
    for (std::size_t size = 0; size <= SharedMemoryGroup::kHeadBytes; ++size) {
      std::array<std::byte, SharedMemoryGroup::kHeadBytes> mine{};
      for (std::size_t i = 0; i < size; ++i) mine[i] = byte_of(group.rank(), round, i);
      group.announce({.kind = "test"}, ++round, SharedMemoryGroup::Touches::SLOTS,
                     std::span(mine).first(size));
      group.await_announcements(soon());
      for (int each = 0; each < group.num_workers(); ++each) {
        const auto* const theirs =
            static_cast<const std::byte*>(group.heads()[static_cast<std::size_t>(each)]);
        for (std::size_t i = 0; i < size; ++i) {
          ASSERT_EQ(theirs[i], byte_of(each, round - 1, i)) << "byte " << i << " of " << size;
        }
      }
    }
  };
  for (const std::size_t n : {1UL, 2UL, 3UL}) EXPECT_EQ(run_clusters(n, work), no_errors(n));
}

TEST(SharedMemoryGroupTest, ASlotOfABrokenGroupIsNotFilledAgain) {
  const auto work = [](const std::shared_ptr<Cluster>& cluster) {
    SharedMemoryGroup group(cluster);
    if (cluster->rank() == 0) {
      group.announce({.kind = "test"}, 1, SharedMemoryGroup::Touches::SLOTS);
      EXPECT_THROW(group.await_announcements(Deadline::after(std::chrono::milliseconds(50))),
                   DeadlineExceededError);
      EXPECT_THROW((void)group.slot(), FailedPreconditionError);
    }
    cluster->barrier();
  };
  EXPECT_EQ(run_clusters(2, work), no_errors(2));
}

TEST(SharedMemoryGroupTest, HeadsThatAreTooLongAreRefused) {
  const auto work = [](const std::shared_ptr<Cluster>& cluster) {
    SharedMemoryGroup group(cluster);
    const std::array<std::byte, SharedMemoryGroup::kHeadBytes + 1> head{};
    constexpr auto kSlots = SharedMemoryGroup::Touches::SLOTS;
    EXPECT_THROW(group.announce({.kind = "test"}, 1, kSlots, head), ValueError);
    group.announce({.kind = "test"}, 1, kSlots,
                   std::span(head).first<SharedMemoryGroup::kHeadBytes>());
    group.await_announcements(soon());
  };
  EXPECT_EQ(run_clusters(2, work), no_errors(2));
}

TEST(SharedMemoryGroupTest, WhatDiffersIsNamedWithEverybodysVersion) {
  int differing = 0;
  const auto work = [&differing](const std::shared_ptr<Cluster>& cluster) {
    SharedMemoryGroup group(cluster);
    const int rank = cluster->rank();
    group.announce({.kind = rank == differing ? "other" : "test", .size_bytes = 4U}, 1);
    try {
      group.await_announcements(soon());
      ADD_FAILURE() << "no error";
    } catch (const InternalError& error) {
      const std::string text = error.what();
      EXPECT_TRUE(text.find("workers make different calls: rank 0 ") != std::string::npos) << text;
      for (int each = 0; each < cluster->num_workers(); ++each) {
        const std::size_t at = text.find("rank " + std::to_string(each) + " ");
        ASSERT_NE(at, std::string::npos) << text;
        const std::string version = text.substr(at, text.find(';', at) - at);
        EXPECT_NE(version.find(each == differing ? "other" : "test"), std::string::npos) << text;
      }
      // Of two nobody can say who is right.
      ASSERT_EQ(error.culprits().size(), cluster->num_workers() == 2 ? 2U : 1U) << text;
      if (cluster->num_workers() > 2) {
        EXPECT_EQ(error.culprits()[0].rank, differing) << text;
      }
    }
    cluster->barrier();
  };
  for (const std::size_t n : {2UL, 3UL, 5UL}) {
    for (differing = 0; differing < static_cast<int>(n); ++differing) {
      EXPECT_EQ(run_clusters(n, work), no_errors(n));
    }
  }
}

}  // namespace
}  // namespace crossdevice
