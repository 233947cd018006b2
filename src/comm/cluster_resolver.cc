// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/cluster_resolver.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/device.h"

#include "comm/detail/host_port.h"
#include "comm/detail/launcher_variables.h"

namespace crossdevice {
namespace {

constexpr std::uint64_t kMaxGatheredBytes = 1U << 20U;

[[noreturn]] void refuse(const WorkerIdentity& identity, const std::string& why) {
  throw ValueError(fmt::format("{}: {}", identity.launcher, why));
}

void validate_address(const WorkerIdentity& identity, const std::string& address) {
  if (address.empty()) return;
  const bool has_odd_bytes =
      std::any_of(address.begin(), address.end(), [](char c) { return c <= ' ' || c > '~'; });
  if (has_odd_bytes) {
    refuse(identity, fmt::format("the chief's address '{}' has bytes no address has",
                                 detail::printable(address)));
  }
  try {
    (void)detail::parse_host_port(address);
  } catch (const ValueError& error) {
    refuse(identity, fmt::format("the chief's address: {}", error.what()));
  }
}

using Size = std::array<std::byte, sizeof(std::uint64_t)>;

Size bytes_of(std::uint64_t number) {
  Size bytes{};
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(number & 0xFFU);
    number >>= 8U;
  }
  return bytes;
}

std::uint64_t number_of(std::span<const std::byte> bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    number = (number << 8U) | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return number;
}

}  // namespace

void validate(const WorkerIdentity& identity) {
  const int size = identity.num_workers;
  if (size < 1 || size > detail::kMaxWorkers) {
    refuse(identity, fmt::format("expected 1 to {} workers, got {}", detail::kMaxWorkers, size));
  }
  if (identity.rank < 0 || identity.rank >= size) {
    refuse(identity, fmt::format("expected a rank from 0 to {}, got {}", size - 1, identity.rank));
  }
  if (identity.local_rank.has_value() != identity.local_num_workers.has_value()) {
    refuse(identity, "a local rank and the number of local workers come together or not at all");
  }
  if (identity.local_rank.has_value()) {
    const int local_size = *identity.local_num_workers;
    if (local_size < 1 || local_size > size) {
      refuse(identity,
             fmt::format("expected 1 to {} workers on this host, got {}", size, local_size));
    }
    if (*identity.local_rank < 0 || *identity.local_rank >= local_size) {
      refuse(identity, fmt::format("expected a local rank from 0 to {}, got {}", local_size - 1,
                                   *identity.local_rank));
    }
  }
  validate_address(identity, identity.chief_address);
  for (const std::string& each : identity.more_chief_addresses) validate_address(identity, each);
}

std::string to_string(const WorkerIdentity& identity) {
  std::string text = fmt::format("rank {} of {}", identity.rank, identity.num_workers);
  if (identity.local_rank.has_value() && identity.local_num_workers.has_value()) {
    text += fmt::format(" (local {} of {})", *identity.local_rank, *identity.local_num_workers);
  }
  if (!identity.chief_address.empty()) text += ", chief at " + identity.chief_address;
  return text + ", from " + identity.launcher;
}

ClusterResolver::~ClusterResolver() = default;

WorkerIdentity ClusterResolver::identity() const {
  WorkerIdentity identity = identity_implementation();
  validate(identity);
  return identity;
}

ClusterSpec ClusterResolver::cluster_spec() const {
  return identity().cluster_spec.value_or(ClusterSpec());
}

std::optional<std::string> ClusterResolver::task_type() const { return identity().job; }

std::optional<int> ClusterResolver::task_id() const { return identity().task_index; }

std::string ClusterResolver::master(const std::optional<std::string>& task_type,
                                    std::optional<int> task_id,
                                    const std::optional<std::string>& rpc_layer) const {
  const WorkerIdentity self = identity();
  const std::string job = task_type.value_or(self.job);
  const int index = task_id.value_or(self.task_index);
  const std::optional<std::string> layer = rpc_layer.has_value() ? rpc_layer : this->rpc_layer();
  if (self.cluster_spec.has_value()) {
    return format_master_url(self.cluster_spec->task_address(job, index), layer);
  }
  // The launcher lists no tasks: the chief's address is the only one that is known.
  const bool is_chief = job == self.job && index == 0;
  if (!is_chief || self.chief_address.empty()) return "";
  return format_master_url(self.chief_address, layer);
}

std::map<std::string, int> ClusterResolver::num_accelerators(
    const std::optional<std::string>& /*task_type*/, std::optional<int> /*task_id*/) const {
  std::map<std::string, int> counts;
  if (num_gpus() > 0) counts["GPU"] = num_gpus();
  return counts;
}

std::string ClusterResolver::environment() const { return ""; }

std::optional<std::string> ClusterResolver::rpc_layer() const { return std::nullopt; }

bool ClusterResolver::can_all_gather() const { return false; }

void ClusterResolver::all_gather_implementation(std::span<const std::byte> /*mine*/,
                                                std::span<std::byte> /*all*/) const {
  throw FailedPreconditionError("this cluster resolver cannot exchange bytes between the workers");
}

std::vector<std::string> ClusterResolver::all_gather(std::string_view mine) const {
  if (!can_all_gather()) {
    throw FailedPreconditionError(
        "this cluster resolver cannot exchange bytes between the workers");
  }
  const WorkerIdentity self = identity();
  const auto num_workers = static_cast<std::size_t>(self.num_workers);
  // The lengths first; then everybody sends as much as the longest, so that one fixed-size exchange is all a caller has to offer.
  std::vector<std::byte> sizes(num_workers * sizeof(Size));
  const Size size = bytes_of(mine.size());
  all_gather_implementation(size, sizes);
  std::vector<std::size_t> lengths;
  lengths.reserve(num_workers);
  for (std::size_t rank = 0; rank < num_workers; ++rank) {
    const std::uint64_t length =
        number_of(std::span(sizes).subspan(rank * sizeof(Size), sizeof(Size)));
    if (length > kMaxGatheredBytes) {
      throw ValueError(fmt::format("all_gather: rank {} gives {} bytes, more than {}", rank, length,
                                   kMaxGatheredBytes));
    }
    lengths.push_back(static_cast<std::size_t>(length));
  }
  if (lengths[static_cast<std::size_t>(self.rank)] != mine.size()) {
    throw ValueError(fmt::format(
        "all_gather: rank {} gave {} bytes, but the caller's function says {}: it must return "
        "everybody's bytes in rank order",
        self.rank, mine.size(), lengths[static_cast<std::size_t>(self.rank)]));
  }
  const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<std::string> parts(num_workers);
  if (longest == 0) return parts;
  std::vector<std::byte> padded(longest);
  if (!mine.empty()) std::memcpy(padded.data(), mine.data(), mine.size());
  std::vector<std::byte> all(num_workers * longest);
  all_gather_implementation(padded, all);
  for (std::size_t rank = 0; rank < num_workers; ++rank) {
    parts[rank].assign(reinterpret_cast<const char*>(all.data() + rank * longest), lengths[rank]);
  }
  return parts;
}

std::string format_master_url(const std::string& address,
                              const std::optional<std::string>& rpc_layer) {
  return rpc_layer.has_value() && !rpc_layer->empty() ? *rpc_layer + "://" + address : address;
}

}  // namespace crossdevice
