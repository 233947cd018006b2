// SPDX-License-Identifier: Apache-2.0
/// The devices a program runs on: a list from the command line, or a default.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/device/device.h"

namespace crossdevice::programs {

/// "CPU:0,CPU:1" as names; blanks around a name do not count.
///
/// Errors   ArgumentError: an empty name.
[[nodiscard]] std::vector<std::string> split_device_names(std::string_view list);

/// The devices of a list such as "CPU:0,CPU:1".
///
/// Errors   ArgumentError: a name is empty or stands twice. ValueError: not a device, or one that is not present.
[[nodiscard]] Devices parse_devices(std::string_view list);

/// The first `count` GPUs if there are any, else the first `count` host devices.
///
/// Errors   ArgumentError: count is not positive. ValueError: there are fewer.
[[nodiscard]] Devices first_devices(int count);

/// All GPUs if there are any, else four host devices, or as many as CROSSDEVICE_CPU_DEVICES leaves.
[[nodiscard]] Devices default_devices();
/// What they are without GPUs.
[[nodiscard]] Devices default_host_devices();

}  // namespace crossdevice::programs
