// SPDX-License-Identifier: Apache-2.0
/// Measures Gloo's ring all-reduce over TCP, started by crossdevice-run. The workers find each other through files in the empty directory
/// that GLOO_STORE names.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/comm/detect_cluster_resolver.h"
#include "crossdevice/core/environment.h"

#include "collective/meeting.h"
#include "collective/sample.h"
#include "collective/team.h"
#include "peers/peer.h"
#include "support/program.h"

namespace {

using namespace crossdevice::bench;  // NOLINT(google-build-using-namespace): the program's own
namespace programs = crossdevice::programs;
using SharedContext = std::shared_ptr<gloo::rendezvous::Context>;

constexpr std::chrono::seconds kTimeout{120};

class GlooMeeting : public Meeting {
 public:
  explicit GlooMeeting(SharedContext context) : context_(std::move(context)) {}

  void line_up() override {
    for (int i = 0; i < kReductionsPerLineUp; ++i) {
      float token = 0;
      gloo::AllreduceOptions options(context_);
      options.setOutput(&token, 1);
      options.setReduceFunction([](void* to, const void* a, const void* b, std::size_t n) {
        gloo::max<float>(to, a, b, n);
      });
      gloo::allreduce(options);
    }
  }
  [[nodiscard]] std::vector<std::string> all_gather_bytes(std::string_view mine) override {
    const auto num = static_cast<std::size_t>(context_->size);
    std::vector<std::uint64_t> lengths(num);
    std::uint64_t length = mine.size();
    gather(&length, lengths.data(), std::vector<std::size_t>(num, 1));
    std::vector<std::size_t> counts(lengths.begin(), lengths.end());
    std::size_t sum = 0;
    for (const std::size_t count : counts) sum += count;
    std::string all(sum, '\0');
    std::string copy(mine);
    gather(copy.data(), all.data(), counts);
    std::vector<std::string> pieces;
    pieces.reserve(num);
    std::size_t begin = 0;
    for (const std::size_t count : counts) {
      pieces.push_back(all.substr(begin, count));
      begin += count;
    }
    return pieces;
  }

 private:
  template <class T>
  void gather(T* mine, T* all, const std::vector<std::size_t>& counts) {
    gloo::AllgathervOptions options(context_);
    options.setInput(mine, counts[static_cast<std::size_t>(context_->rank)]);
    options.setOutput(all, counts);
    gloo::allgatherv(options);
  }

  SharedContext context_;
};

/// The interface that crossdevice-run names where there are namespaces.
SharedContext connect(const crossdevice::WorkerIdentity& identity) {
  const char* const store_path = std::getenv("GLOO_STORE");
  if (store_path == nullptr)
    throw programs::ArgumentError("GLOO_STORE must name an empty directory");
  const char* const interface = std::getenv(crossdevice::kSocketInterfaceVariable);
  gloo::transport::tcp::attr attr;
  attr.iface = interface != nullptr ? interface : "lo";
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
  gloo::rendezvous::FileStore store(store_path);
  auto context = std::make_shared<gloo::rendezvous::Context>(identity.rank, identity.num_workers);
  context->setTimeout(kTimeout);
  context->connectFullMesh(store, device);
  return context;
}

TeamPlace place_of(const crossdevice::WorkerIdentity& identity) {
  const int num_local = identity.local_num_workers.value_or(identity.num_workers);
  return {.rank = static_cast<std::size_t>(identity.rank),
          .num_workers = static_cast<std::size_t>(identity.num_workers),
          .num_hosts = static_cast<std::size_t>(identity.num_workers / num_local),
          .num_local_workers = static_cast<std::size_t>(num_local)};
}

std::string how_set_up() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_congestion_control");
  std::string name = "unknown congestion control";
  file >> name;
  return "ring, " + name;
}

void add(void* sum, const void* a, const void* b, std::size_t count) {
  gloo::sum<float>(sum, a, b, count);
}

}  // namespace

int main(int argc, char** argv) {
  return programs::run_program("peer-gloo", [&] {
    const crossdevice::WorkerIdentity identity = crossdevice::detect_cluster_resolver()->identity();
    const SharedContext context = connect(identity);
    Peer peer{.name = "gloo",
              .algorithm = how_set_up(),
              .version = fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR,
                                     GLOO_VERSION_PATCH),
              .team = Team(std::make_shared<GlooMeeting>(context), place_of(identity)),
              .all_reduce = [&context](const float* input, float* output, std::size_t count) {
                gloo::AllreduceOptions options(context);
                if (input != output) options.setInput(const_cast<float*>(input), count);
                options.setOutput(output, count);
                options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
                options.setReduceFunction(add);
                gloo::allreduce(options);
              }};
    return measure_peer(peer, argc, argv);
  });
}
