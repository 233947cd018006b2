// SPDX-License-Identifier: Apache-2.0
// Interned devices and lists of devices.
#include "crossdevice/device/device.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/device_spec.h"
#include "crossdevice/device/shutdown.h"

#include "device/detail/intern_table.h"
#include "device/detail/logical_gpus.h"

namespace crossdevice {
namespace detail {

struct DeviceListRecord {
  std::vector<Device> devices;
  bool has_duplicates = false;
  bool all_host = true;
  int last_bare_host_index =
      -1;  // the greatest; of a list with others than hosts, or with labels, a greater one than there ever is
  const DeviceListRecord* set =
      nullptr;  // the list of the same devices, each once, in order of appearance
  mutable std::atomic<const TraceTracks*> tracks{nullptr};  // made when first asked for
};

struct DeviceRecord {
  DeviceType type;
  int index;
  std::string name;
  std::string short_name;
  DeviceSpec spec;
  std::size_t serial;      // order of first appearance in this process
  DeviceListRecord alone;  // the list of this device only: the commonest list costs no look-up
  mutable std::atomic<GpuDevice*> gpu{nullptr};  // once it was used

  static const DeviceRecord& of(const Device& device) { return *device.record_; }
  static Device handle(const DeviceRecord& record) { return Device(&record); }
};

}  // namespace detail

namespace {

using detail::DeviceListRecord;
using detail::DeviceRecord;

// A spelling and what it means; a canonical name is a spelling too.
struct Spelling {
  std::string text;
  const DeviceRecord* device;
};

// Never destroyed: handles may be used until the process ends, by destructors of static objects
// too.
struct Registry {
  detail::InternTable<Spelling> spellings;
  detail::InternTable<DeviceRecord> devices;
  detail::InternTable<DeviceListRecord> lists;  // of none or several devices
  std::atomic<std::size_t> next_serial{0};
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

// Multiplication spreads a word over the high bits, the shift brings them back down to where slots are picked.
std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 32);
}

// Inline and by words, because it is most of what looking up a name costs.
std::size_t hash_of(std::string_view text) {
  std::uint64_t hash = text.size();
  std::uint64_t word = 0;
  for (; text.size() >= sizeof word; text.remove_prefix(sizeof word)) {
    std::memcpy(&word, text.data(), sizeof word);
    hash = mix(hash, word);
  }
  word = 0;
  for (const char c : text) word = word << 8 | static_cast<unsigned char>(c);
  return mix(hash, word);
}

std::size_t hash_of(std::span<const Device> devices) {
  std::uint64_t hash = devices.size();
  for (const Device& device : devices) hash = mix(hash, DeviceRecord::of(device).serial);
  return hash;
}

int last_bare_host_index_of(std::span<const Device> devices) {
  int last = -1;
  for (const Device& device : devices) {
    if (!device.is_host() || !device.has_bare_labels()) return std::numeric_limits<int>::max();
    last = std::max(last, device.index());
  }
  return last;
}

// A child of fork() may have inherited a lock that nobody will release. Names as such are no use of the library, so a process
// that only has names stays free to fork.
void require_lock_is_ours() {
  if (detail::is_forked_child()) detail::require_not_forked();
}

[[noreturn]] void throw_bad_device(std::string_view name, std::string_view what) {
  throw ValueError("device \"" + std::string(name) + "\" " + std::string(what));
}

DeviceType type_of(const DeviceSpec& spec, std::string_view name) {
  if (spec.device_type == "CPU") return DeviceType::CPU;
  if (spec.device_type == "GPU") return DeviceType::GPU;
  throw_bad_device(name, "has type " + *spec.device_type + ": expected CPU or GPU");
}

// Fills in what `name` leaves open. A type without an index stays open, so it is refused: it means
// any device of the type.
DeviceSpec full_spec(std::string_view name) {
  const DeviceSpec given = DeviceSpec::from_string(name);
  if (given == DeviceSpec{}) {
    throw_bad_device(name,
                     "names nothing: expected for example \"CPU:0\" or \"/job:worker/task:1\"");
  }
  if (given.device_type && !given.device_index) {
    throw_bad_device(name, "has no index: expected for example \"" + *given.device_type + ":0\"");
  }
  DeviceSpec spec = DeviceSpec::from_string(canonicalize(name));
  constexpr int kLast = std::numeric_limits<int>::max();
  if (*spec.device_index < 0 || *spec.device_index > kLast) {
    throw_bad_device(name, "has index " + std::to_string(*spec.device_index) + ": expected 0 to " +
                               std::to_string(kLast));
  }
  return spec;
}

// "CPU:0" is enough where the labels are those that a bare "CPU:0" gets.
std::string short_name_of(const DeviceSpec& spec, const std::string& name) {
  const DeviceSpec bare{.device_type = spec.device_type, .device_index = spec.device_index};
  if (canonicalize(bare.to_string()) != name) return name;
  return *spec.device_type + ":" + std::to_string(*spec.device_index);
}

std::unique_ptr<DeviceRecord> make_device(DeviceSpec spec, DeviceType type, std::string name) {
  auto record = std::make_unique<DeviceRecord>();
  record->type = type;
  record->index = static_cast<int>(*spec.device_index);
  record->short_name = short_name_of(spec, name);
  record->name = std::move(name);
  record->spec = std::move(spec);
  record->serial = registry().next_serial.fetch_add(1, std::memory_order_relaxed);
  record->alone.devices = {DeviceRecord::handle(*record)};
  record->alone.all_host = type == DeviceType::CPU;
  record->alone.last_bare_host_index = last_bare_host_index_of(record->alone.devices);
  record->alone.set = &record->alone;
  return record;
}

const DeviceRecord* intern_device(std::string_view name) {
  DeviceSpec spec = full_spec(name);
  const DeviceType type = type_of(spec, name);
  const std::string full_name = spec.to_string();
  return registry().devices.intern(
      hash_of(full_name), [&](const DeviceRecord& device) { return device.name == full_name; },
      [&] { return make_device(std::move(spec), type, full_name); });
}

const DeviceRecord* find_or_intern_device(std::string_view name) {
  const std::size_t hash = hash_of(name);
  const auto equals = [&](const Spelling& spelling) { return spelling.text == name; };
  if (const Spelling* known = registry().spellings.find(hash, equals)) return known->device;
  require_lock_is_ours();
  const DeviceRecord* device = intern_device(name);
  const auto make = [&] { return std::make_unique<Spelling>(Spelling{std::string(name), device}); };
  return registry().spellings.intern(hash, equals, make)->device;
}

std::vector<Device> each_once(std::span<const Device> devices) {
  const auto serial = [](const Device& device) { return DeviceRecord::of(device).serial; };
  std::vector<Device> result(devices.begin(), devices.end());
  std::ranges::sort(result, {}, serial);
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

const DeviceListRecord* find_or_intern_list(std::span<const Device> devices) {
  if (devices.size() == 1) return &DeviceRecord::of(devices.front()).alone;
  const std::size_t hash = hash_of(devices);
  const auto equals = [&](const DeviceListRecord& list) {
    return std::ranges::equal(list.devices, devices);
  };
  if (const DeviceListRecord* known = registry().lists.find(hash, equals)) return known;
  require_lock_is_ours();

  // The list that stands for the set comes first, because tables are not entered from make(); a
  // list that is its own set ends the recursion.
  const std::vector<Device> set = each_once(devices);
  const bool is_set = std::ranges::equal(set, devices);
  const DeviceListRecord* set_record = is_set ? nullptr : find_or_intern_list(set);
  return registry().lists.intern(hash, equals, [&] {
    auto record = std::make_unique<DeviceListRecord>();
    record->devices.assign(devices.begin(), devices.end());
    record->has_duplicates = set.size() != devices.size();
    record->all_host = std::ranges::all_of(devices, &Device::is_host);
    record->last_bare_host_index = last_bare_host_index_of(devices);
    record->set = is_set ? record.get() : set_record;
    return record;
  });
}

std::string_view checked(const char* name) {
  if (name == nullptr) throw ValueError("device name: expected a string, got a null pointer");
  return name;
}

}  // namespace

std::string_view to_string(DeviceType type) {
  switch (type) {
    case DeviceType::CPU:
      return "CPU";
    case DeviceType::GPU:
      return "GPU";
  }
  return "unknown";
}

Device::Device(const char* name) : Device(checked(name)) {}
Device::Device(std::string_view name) : record_(find_or_intern_device(name)) {}
Device::Device(const std::string& name) : Device(std::string_view(name)) {}

DeviceType Device::type() const { return record_->type; }
int Device::index() const { return record_->index; }
const std::string& Device::name() const { return record_->name; }
const std::string& Device::short_name() const { return record_->short_name; }
const DeviceSpec& Device::spec() const { return record_->spec; }
bool Device::has_bare_labels() const { return record_->short_name.size() != record_->name.size(); }

std::ostream& operator<<(std::ostream& out, const Device& device) {
  return out << device.short_name();
}

namespace detail {

GpuDevice* remembered_gpu_of(const Device& device) noexcept {
  return DeviceRecord::of(device).gpu.load(std::memory_order_acquire);
}

void remember_gpu_of(const Device& device, GpuDevice& gpu) noexcept {
  DeviceRecord::of(device).gpu.store(&gpu, std::memory_order_release);
}

}  // namespace detail

Devices::Devices() {
  static const DeviceListRecord* const none = find_or_intern_list({});
  record_ = none;
}
Devices::Devices(std::initializer_list<Device> devices)
    : Devices(std::span<const Device>(devices.begin(), devices.size())) {}
Devices::Devices(std::span<const Device> devices) : record_(find_or_intern_list(devices)) {}
Devices::Devices(const Device& device) : record_(&DeviceRecord::of(device).alone) {}

std::span<const Device> Devices::view() const { return record_->devices; }
bool Devices::contains(const Device& device) const {
  return std::ranges::find(record_->devices, device) != record_->devices.end();
}
bool Devices::has_duplicates() const { return record_->has_duplicates; }
bool Devices::all_host() const { return record_->all_host; }
int Devices::last_bare_host_index() const { return record_->last_bare_host_index; }
bool Devices::same_set(const Devices& other) const { return record_->set == other.record_->set; }

const detail::TraceTracks& Devices::trace_tracks() const {
  if (const detail::TraceTracks* const known = record_->tracks.load(std::memory_order_acquire)) {
    return *known;
  }
  auto made = std::make_unique<detail::TraceTracks>();
  const std::vector<Device>& all = record_->set->devices;
  made->names.reserve(all.size());
  for (const Device& each : all) made->names.push_back(each.short_name());
  const detail::TraceTracks* first = nullptr;
  if (record_->tracks.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel,
                                              std::memory_order_acquire)) {
    return *made.release();
  }
  return *first;
}

std::string Devices::to_string() const {
  std::string result = "[";
  for (const Device& device : *this) {
    if (result.size() > 1) result += ", ";
    result += device.short_name();
  }
  return result + "]";
}

std::ostream& operator<<(std::ostream& out, const Devices& devices) {
  return out << devices.to_string();
}

}  // namespace crossdevice
