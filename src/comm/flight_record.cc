// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/flight_record.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/log.h"

#include "comm/detail/flight_recorder.h"

namespace crossdevice {
namespace {

/// A ring: number n stands at n % kFlightRecordSize until n + kFlightRecordSize comes.
struct Ring {
  std::mutex mutex;  // guards the rest
  std::vector<FlightEntry> entries;
  std::uint64_t last = 0;

  [[nodiscard]] FlightEntry* find(std::uint64_t number) {
    if (number == 0) return nullptr;
    FlightEntry& entry = entries[number % kFlightRecordSize];
    return entry.number == number ? &entry : nullptr;  // null: it has been written over
  }
};

Ring& ring() {
  static Ring& instance = *new Ring;  // never destroyed: the watchdog may still write
  return instance;
}

nlohmann::json to_json(const FlightEntry& entry) {
  nlohmann::json devices = nlohmann::json::array();
  for (const Device& each : entry.devices) devices.push_back(each.short_name());
  nlohmann::json json = {{"number", entry.number},
                         {"operation", to_string(entry.operation)},
                         {"kind", std::string(entry.operation.kind)},
                         {"sequence", entry.operation.sequence},
                         {"num_values", entry.operation.num_values},
                         {"detail", entry.detail},
                         {"size_bytes", entry.size_bytes},
                         {"dtype", nullptr},
                         {"devices", std::move(devices)},
                         {"timeout_seconds", nullptr},
                         {"state", std::string(to_string(entry.state))},
                         {"enqueued_ns", entry.enqueued_ns},
                         {"started_ns", entry.started_ns},
                         {"ended_ns", entry.ended_ns},
                         {"error", entry.error}};
  if (entry.dtype.has_value()) {
    json["dtype"] = std::string(to_string(*entry.dtype));
  } else if (entry.size_bytes != 0) {
    json["dtype"] = "mixed";
  }
  if (entry.timeout_seconds.has_value()) json["timeout_seconds"] = *entry.timeout_seconds;
  return json;
}

}  // namespace

std::string_view to_string(FlightState state) {
  switch (state) {
    case FlightState::ENQUEUED:
      return "enqueued";
    case FlightState::STARTED:
      return "started";
    case FlightState::COMPLETED:
      return "completed";
    case FlightState::FAILED:
      return "failed";
  }
  return "unknown";
}

std::vector<FlightEntry> flight_record() {
  Ring& all = ring();
  const std::lock_guard lock(all.mutex);
  std::vector<FlightEntry> result = all.entries;
  result.erase(std::remove_if(result.begin(), result.end(),
                              [](const FlightEntry& entry) { return entry.number == 0; }),
               result.end());
  std::sort(result.begin(), result.end(),
            [](const FlightEntry& a, const FlightEntry& b) { return a.number < b.number; });
  return result;
}

std::string flight_record_json() {
  nlohmann::json operations = nlohmann::json::array();
  for (const FlightEntry& entry : flight_record()) operations.push_back(to_json(entry));
  const nlohmann::json all = {{"pid", ::getpid()},
                              {"written_ns", detail::flight_clock_ns()},
                              {"operations", std::move(operations)}};
  // A text that is not UTF-8 must not cost the whole record.
  return all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace detail {

std::int64_t flight_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::uint64_t record_enqueued(const FlightPlan& plan) {
  Ring& all = ring();
  const std::lock_guard lock(all.mutex);
  if (all.entries.empty()) all.entries.resize(kFlightRecordSize);
  FlightEntry& kept = all.entries[++all.last % kFlightRecordSize];
  kept.number = all.last;
  kept.operation = plan.operation;
  kept.detail.assign(plan.detail);
  kept.size_bytes = plan.size_bytes;
  kept.dtype = plan.dtype;
  kept.devices = plan.devices;
  kept.timeout_seconds = plan.timeout_seconds;
  kept.state = FlightState::ENQUEUED;
  kept.enqueued_ns = plan.enqueued_ns != 0 ? plan.enqueued_ns : flight_clock_ns();
  kept.started_ns = 0;
  kept.ended_ns = 0;
  kept.error.clear();
  return kept.number;
}

void record_started(std::uint64_t number) {
  Ring& all = ring();
  const std::lock_guard lock(all.mutex);
  FlightEntry* const entry = all.find(number);
  if (entry == nullptr || entry->state != FlightState::ENQUEUED) return;
  entry->state = FlightState::STARTED;
  entry->started_ns = flight_clock_ns();
}

void record_completed(std::uint64_t number) {
  Ring& all = ring();
  const std::lock_guard lock(all.mutex);
  FlightEntry* const entry = all.find(number);
  if (entry == nullptr) return;
  entry->state = FlightState::COMPLETED;
  entry->ended_ns = flight_clock_ns();
  if (entry->started_ns == 0) entry->started_ns = entry->ended_ns;
}

void record_failed(std::uint64_t number, const std::string& error) {
  Ring& all = ring();
  const std::lock_guard lock(all.mutex);
  FlightEntry* const entry = all.find(number);
  if (entry == nullptr) return;
  entry->state = FlightState::FAILED;
  entry->ended_ns = flight_clock_ns();
  entry->error = error;
}

void dump_flight_record(const std::string& path) {
  static std::mutex& writing = *new std::mutex;  // never destroyed: service threads write
  const std::lock_guard lock(writing);
  const std::string text = flight_record_json();
  const std::string beside = fmt::format("{}.{}.part", path, ::getpid());
  std::ofstream file(beside, std::ios::binary | std::ios::trunc);
  file << text << '\n';
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(beside, path, error);
  if (!file || error) {
    log(LogSeverity::WARNING, fmt::format("the flight record could not be written to {}{}{}", path,
                                          error ? ": " : "", error ? error.message() : ""));
    std::filesystem::remove(beside, error);
  }
}

void dump_flight_record() noexcept {
  try {
    std::string path = environment().flight_record;
    if (path.empty()) return;
    if (const std::size_t at = path.find("%p"); at != std::string::npos) {
      path.replace(at, 2, std::to_string(::getpid()));
    }
    dump_flight_record(path);
  } catch (const std::exception& error) {
    log(LogSeverity::WARNING,
        fmt::format("the flight record could not be written: {}", error.what()));
  }
}

}  // namespace detail
}  // namespace crossdevice
