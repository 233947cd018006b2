// SPDX-License-Identifier: Apache-2.0
#include "doctor/verified_all_reduce.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/device/copy.h"

#include "support/byte_size.h"

namespace crossdevice::doctor {
namespace {

constexpr std::array<std::size_t, 3> kCounts{1, 1000, std::size_t{1} << 20};
constexpr int kTimedCalls = 5;

/// Small whole numbers, so that sums are exact whatever the order; different for every replica and index.
float element(std::size_t index, int replica) {
  constexpr std::size_t kPeriod = 251;
  return static_cast<float>((index + 31 * static_cast<std::size_t>(replica)) % kPeriod);
}

Tensor host_values(std::size_t count, int replica) {
  Tensor tensor = Tensor::empty(DType::FLOAT32, {count}, "CPU:0");
  const auto elements = tensor.span<float>();
  for (std::size_t i = 0; i < count; ++i) elements[i] = element(i, replica);
  return tensor;
}

/// Empty: every element of every component is the sum, or the mean.
std::string first_wrong(const PerReplica& value, ReduceOp op, ReplicaRange replicas) {
  for (const Tensor& component : value.values()) {
    const Tensor here = copy_to_device(component, "CPU:0");
    const auto elements = here.span<const float>();
    for (std::size_t i = 0; i < elements.size(); ++i) {
      float expected = 0;
      for (int r = 0; r < replicas.total; ++r) expected += element(i, r);
      if (op == ReduceOp::MEAN) expected /= static_cast<float>(replicas.total);
      if (elements[i] != expected) {
        return fmt::format("{} of {} floats: element {} on {} is {}, expected {}", to_string(op),
                           elements.size(), i, component.device().short_name(), elements[i],
                           expected);
      }
    }
  }
  return {};
}

double seconds_of_call(CrossDeviceOps& ops, const PerReplica& value) {
  const auto begin = std::chrono::steady_clock::now();
  ops.reduce_into(ReduceOp::MEAN, value, value);
  // On GPUs the call returns before the sums are there: a copy to the host comes behind them.
  for (const Tensor& component : value.values()) {
    if (!component.device().is_host()) (void)copy_to_device(component, "CPU:0");
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

AllReduceOutcome verify_all_reduce(CrossDeviceOps& ops, const Devices& devices,
                                   ReplicaRange replicas, ValueMemory memory) {
  AllReduceOutcome outcome{.seconds = std::numeric_limits<double>::infinity()};
  for (const std::size_t count : kCounts) {
    std::vector<std::vector<float>> own(devices.size());
    std::vector<Tensor> components;
    components.reserve(devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (memory == ValueMemory::OWN) own[i].resize(count);
      components.push_back(memory == ValueMemory::OWN
                               ? Tensor::view(std::span(own[i]), devices[i])
                               : Tensor::empty(DType::FLOAT32, {count}, devices[i]));
    }
    const PerReplica value(std::move(components));
    for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MEAN}) {
      for (std::size_t i = 0; i < devices.size(); ++i) {
        copy(value.values()[i], host_values(count, replicas.first + static_cast<int>(i)));
      }
      ops.reduce_into(op, value, value);
      std::string wrong = first_wrong(value, op, replicas);
      if (outcome.wrong.empty()) outcome.wrong = std::move(wrong);
    }
    outcome.size_bytes = count * sizeof(float);
    if (count != kCounts.back()) continue;
    for (int i = 0; i < kTimedCalls; ++i) {
      outcome.seconds = std::min(outcome.seconds, seconds_of_call(ops, value));
    }
  }
  ops.check();
  return outcome;
}

Finding all_reduce_finding(std::string name, const std::string& where,
                           const AllReduceOutcome& outcome) {
  Finding finding{.name = std::move(name)};
  finding.facts = {
      {"size_bytes", outcome.size_bytes}, {"seconds", outcome.seconds}, {"wrong", outcome.wrong}};
  if (!outcome.wrong.empty()) {
    finding.status = Status::FAILURE;
    finding.text = fmt::format("{}: WRONG VALUES: {}", where, outcome.wrong);
    finding.advice = kValuesAreWrong;
    return finding;
  }
  finding.text = fmt::format("{}: every sum and mean is right, up to {}, in {:.2f} ms", where,
                             programs::format_byte_size(outcome.size_bytes), 1e3 * outcome.seconds);
  return finding;
}

}  // namespace crossdevice::doctor
