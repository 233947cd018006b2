// SPDX-License-Identifier: Apache-2.0
/// One device, and a list of devices: interned handles, compared and copied like pointers.
///
/// On hosts the devices are logical: CPU:0 .. CPU:63 exist (CROSSDEVICE_CPU_DEVICES,
/// set_logical_cpu_devices) and share the process's cores and memory. Job, replica and task are
/// labels until a Cluster is joined: "/job:worker/task:1/CPU:0" is another device than "CPU:0", and
/// this process has both. "/job:worker/task:1" alone means that task's CPU:0, so a list of worker
/// prefixes is a list of devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "crossdevice/core/export.h"

namespace crossdevice {

struct DeviceSpec;

enum class DeviceType : std::uint8_t { CPU, GPU };
[[nodiscard]] CROSSDEVICE_EXPORT std::string_view to_string(DeviceType type);

namespace detail {
struct DeviceRecord;      // one per device name, never destroyed
struct DeviceListRecord;  // one per list of devices, never destroyed
struct TraceTracks;
}  // namespace detail

/// A fully named device. TF counterpart: a resolved device string.
///
/// Memory   a name is parsed and interned the first time it is seen, for the life of the process;
/// later constructions look it up,
///          without a lock, and allocate nothing.
/// Errors   ValueError: not a device string, one that names nothing, a type other than CPU and GPU,
/// a type without an index ("GPU",
///          "GPU:*"), a negative index. Naming a device that this host lacks is not an error; using
///          it is (require_present).
/// Threads  any.
/// TF       "" is refused, where TF takes it for CPU:0.
class CROSSDEVICE_EXPORT Device {
 public:
  // NOLINTBEGIN(google-explicit-constructor): TF takes strings
  Device(const char* name);
  Device(std::string_view name);
  Device(const std::string& name);
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] DeviceType type() const;
  [[nodiscard]] int index() const;
  [[nodiscard]] bool is_host() const { return type() == DeviceType::CPU; }
  /// "/job:localhost/replica:0/task:0/device:CPU:0".
  [[nodiscard]] const std::string& name() const;
  /// "CPU:0" where the labels are those a bare "CPU:0" gets, the full name for any other: what
  /// messages show.
  [[nodiscard]] const std::string& short_name() const;
  [[nodiscard]] const DeviceSpec& spec() const;
  /// Whether job, replica and task are those that a bare "CPU:0" gets.
  [[nodiscard]] bool has_bare_labels() const;
  /// Whether this process has it now. Of a worker of several not, where its labels are another one's: see comm/logical_workers.h.
  [[nodiscard]] bool is_present() const;
  /// Errors   ValueError "GPU:9: this host has 0 GPUs: this library was built without CUDA", "CPU:70: this process has 64 logical host
  /// devices (CROSSDEVICE_CPU_DEVICES)".
  void require_present() const;

  friend bool operator==(const Device& a, const Device& b) { return a.record_ == b.record_; }
  [[nodiscard]] std::size_t hash() const { return std::hash<const void*>{}(record_); }

 private:
  friend struct detail::DeviceRecord;
  explicit Device(const detail::DeviceRecord* record) : record_(record) {}
  const detail::DeviceRecord* record_;
};
CROSSDEVICE_EXPORT std::ostream& operator<<(std::ostream& out, const Device& device);

/// An interned list of devices; order and repetitions count. Never a list of strings: `{{"GPU:0",
/// "GPU:1"}}` is two devices. What is known at run time only is made one where it says so:
/// `Devices(names)` of a container of names or of devices, such as a `std::vector<std::string>`.
///
/// Memory   as Device: a list that was seen before is looked up. A range that is no array of devices
///          is made one first.
/// Threads  any.
class CROSSDEVICE_EXPORT Devices {
 public:
  using value_type = Device;
  using const_iterator = const Device*;

  Devices();
  Devices(std::initializer_list<Device> devices);
  explicit Devices(std::span<const Device> devices);
  // NOLINTNEXTLINE(google-explicit-constructor): where several may stand, so may one
  Devices(const Device& device);
  /// Errors   ValueError: as Device of a name that is none.
  template <class Range>
  requires(!std::is_convertible_v<const Range&, Device> &&
           std::is_convertible_v<decltype(*std::begin(std::declval<const Range&>())),
                                 Device>) explicit Devices(const Range& devices)
      : Devices(of_range(devices)) {}

  [[nodiscard]] std::size_t size() const { return view().size(); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] const Device& operator[](std::size_t i) const { return view()[i]; }
  [[nodiscard]] std::span<const Device> view() const;
  [[nodiscard]] const_iterator begin() const { return view().data(); }
  [[nodiscard]] const_iterator end() const {
    const std::span<const Device> all = view();
    return all.data() + all.size();
  }
  [[nodiscard]] bool contains(const Device& device) const;
  /// Whether a device stands in it twice.
  [[nodiscard]] bool has_duplicates() const;
  [[nodiscard]] bool all_host() const;
  /// Of each.
  ///
  /// Errors   ValueError: as Device::require_present() of the first that is not present.
  void require_present() const;
  /// TF's "devices match": the same set, order and multiplicity ignored.
  [[nodiscard]] bool same_set(const Devices& other) const;
  /// "[CPU:0, CPU:1]".
  [[nodiscard]] std::string to_string() const;
  /// Their tracks on a timeline (core/trace.h); made once.
  [[nodiscard]] const detail::TraceTracks& trace_tracks() const;

  friend bool operator==(const Devices& a, const Devices& b) { return a.record_ == b.record_; }
  [[nodiscard]] std::size_t hash() const { return std::hash<const void*>{}(record_); }

 private:
  template <class Range>
  [[nodiscard]] static Devices of_range(const Range& devices) {
    if constexpr (std::is_convertible_v<const Range&, std::span<const Device>>) {
      return Devices(std::span<const Device>(devices));
    } else {
      const std::vector<Device> list(std::begin(devices), std::end(devices));
      return Devices(std::span<const Device>(list));
    }
  }
  [[nodiscard]] int last_bare_host_index() const;

  const detail::DeviceListRecord* record_;
};
CROSSDEVICE_EXPORT std::ostream& operator<<(std::ostream& out, const Devices& devices);

/// How many logical host devices exist: CPU:0 to CPU:n-1. TF counterpart:
/// set_logical_device_configuration.
///
/// Errors   ValueError: not in 1..4096.
/// Threads  any; a device that vanishes is refused by the next call that uses it, its tensors stay
/// readable.
CROSSDEVICE_EXPORT void set_logical_cpu_devices(int count);
[[nodiscard]] CROSSDEVICE_EXPORT int num_logical_cpu_devices();
/// Splits every GPU into `count` devices, as TF's virtual GPUs: GPU:i lies on CUDA's device i / count. They share its memory, its
/// stream and its speed; what they are good for is to run, on one GPU, what is meant for several. Default:
/// CROSSDEVICE_LOGICAL_GPUS, or 1. TF counterpart: set_logical_device_configuration, without a limit on memory.
///
/// Errors   ValueError: not in 1..4096. FailedPreconditionError: a GPU has been used already, with another count.
/// Threads  any.
CROSSDEVICE_EXPORT void set_logical_gpu_devices(int count);
/// GPUs this process can use, logical ones counted: GPU:0 to GPU:n-1. 0 without a driver.
[[nodiscard]] CROSSDEVICE_EXPORT int num_gpus();

}  // namespace crossdevice

template <>
struct std::hash<crossdevice::Device> {
  std::size_t operator()(const crossdevice::Device& device) const { return device.hash(); }
};
template <>
struct std::hash<crossdevice::Devices> {
  std::size_t operator()(const crossdevice::Devices& devices) const { return devices.hash(); }
};
