// SPDX-License-Identifier: Apache-2.0
/// The `axis` of Strategy::reduce: none, one or several dimensions of each replica's value.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

namespace crossdevice {

/// std::nullopt reduces across replicas only; an axis counts from the back when it is negative.
class Axes {
 public:
  // NOLINTBEGIN(google-explicit-constructor): an argument is written as it is in TF
  Axes(std::nullopt_t) {}
  Axes(int axis) : axes_({axis}), has_value_(true) {}
  Axes(std::optional<int> axis) : has_value_(axis.has_value()) {
    if (axis) axes_.push_back(*axis);
  }
  Axes(std::initializer_list<int> axes) : axes_(axes), has_value_(true) {}
  Axes(std::vector<int> axes) : axes_(std::move(axes)), has_value_(true) {}
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool has_value() const { return has_value_; }
  [[nodiscard]] std::span<const int> view() const { return axes_; }

 private:
  std::vector<int> axes_;
  bool has_value_ = false;
};

}  // namespace crossdevice
