// SPDX-License-Identifier: Apache-2.0
/// A copy from every device to every other one, looked at.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/device/copy.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"

#include "doctor/probes.h"
#include "support/byte_size.h"

namespace crossdevice::doctor {
namespace {

/// Copies from and to further host devices are of few bytes: they all share one memory.
constexpr int kHostSample = 4;
constexpr int kMostHosts = 128;          // 16384 pairs
constexpr int kMostGpus = 16;            // 240 pairs
constexpr std::size_t kCount = 262'147;  // bytes: odd, and more than the small copies' paths take
constexpr std::size_t kFewCount = 1'027;

std::uint8_t byte_at(std::size_t index, std::size_t pair) {
  constexpr std::size_t kPeriod = 249;
  return static_cast<std::uint8_t>((index * 3 + pair) % kPeriod);
}

/// Empty: every byte has come.
std::string copy_between(const Device& from, const Device& to, std::size_t count,
                         std::size_t pair) {
  Tensor pattern = Tensor::empty(DType::UINT8, {count}, "CPU:0");
  const auto bytes = pattern.span<std::uint8_t>();
  for (std::size_t i = 0; i < count; ++i) bytes[i] = byte_at(i, pair);
  const Tensor source = copy_to_device(pattern, from);
  const Tensor destination = Tensor::zeros(DType::UINT8, {count}, to);
  copy(destination, source);
  const Tensor back = copy_to_device(destination, "CPU:0");
  const auto came = back.span<const std::uint8_t>();
  for (std::size_t i = 0; i < count; ++i) {
    if (came[i] != byte_at(i, pair)) {
      return fmt::format("{} to {}: byte {} is {}, expected {}", from.short_name(), to.short_name(),
                         i, came[i], byte_at(i, pair));
    }
  }
  return {};
}

bool is_further_host(const Device& device) {
  return device.is_host() && device.index() >= kHostSample;
}

}  // namespace

Findings probe_copies() {
  const int num_hosts = std::min(num_logical_cpu_devices(), kMostHosts);
  const int gpus = std::min(num_gpus(), kMostGpus);
  std::vector<Device> devices;
  devices.reserve(static_cast<std::size_t>(num_hosts + gpus));
  for (int i = 0; i < num_hosts; ++i) devices.emplace_back(fmt::format("CPU:{}", i));
  for (int i = 0; i < gpus; ++i) devices.emplace_back(fmt::format("GPU:{}", i));
  std::size_t pairs = 0;
  std::string wrong;
  for (const Device& from : devices) {
    for (const Device& to : devices) {
      const bool is_in_sample = !is_further_host(from) && !is_further_host(to);
      std::string text = copy_between(from, to, is_in_sample ? kCount : kFewCount, ++pairs);
      if (wrong.empty()) wrong = std::move(text);
    }
  }
  Finding finding{.name = "copies"};
  finding.facts = {{"pairs", pairs},
                   {"host_devices", num_hosts},
                   {"gpus", gpus},
                   {"size_bytes", kCount},
                   {"size_bytes_beyond", kFewCount}};
  finding.text = fmt::format(
      "{} pairs, every byte right: {} of {} host devices (one memory; {} each among the "
      "first {}, {} beyond)",
      pairs, num_hosts, num_logical_cpu_devices(), programs::format_byte_size(kCount),
      std::min(num_hosts, kHostSample), programs::format_byte_size(kFewCount));
  if (num_gpus() > 0) finding.text += fmt::format(", {} of {} GPUs", gpus, num_gpus());
  if (!wrong.empty()) {
    finding.status = Status::FAILURE;
    finding.text = "WRONG BYTES: " + wrong;
    finding.advice =
        "copies between GPUs that go wrong are mostly PCIe access control or the IOMMU: NCCL's "
        "troubleshooting page has a section on it, and "
        "p2pBandwidthLatencyTest of CUDA's samples shows it too";
  }
  return {finding};
}

}  // namespace crossdevice::doctor
