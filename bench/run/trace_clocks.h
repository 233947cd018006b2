// SPDX-License-Identifier: Apache-2.0
/// The clocks of a job's machines, and what a time by one of them is by another.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace crossdevice::run {

/// Clocks have names: the same for what is one clock. Times of some years and more are no clock's, and are not noted.
class TraceClocks {
 public:
  /// What the system's clock (CLOCK_REALTIME) said when `clock` said `at_ns`: good to as much as the machines' system clocks agree.
  void note_system_time(const std::string& clock, std::int64_t at_ns, std::int64_t system_ns);
  /// How much had to be added to a time of `clock`, at `at_ns`, to get one of `other`; wrong by `within_ns` at most. Clocks drift: any number of these.
  void note_offset(const std::string& clock, const std::string& other, std::int64_t at_ns,
                   std::int64_t to_add_ns, std::int64_t within_ns);
  /// All has been noted, and times are to be those of `reference`. Drops comparisons that are poor beside the best one.
  void settle(const std::string& reference);

  /// What to add to `at_ns`, a time of `clock`, to get one of the reference: between two comparisons in proportion, before the first and after the last one as
  /// in these. Clocks that were not compared with each other are by way of others that both were; failing that, the system clocks. 0 where nothing is known.
  [[nodiscard]] std::int64_t to_add_ns(const std::string& clock, std::int64_t at_ns) const;

 private:
  struct Point {
    std::int64_t at_ns;
    std::int64_t to_add_ns;
    std::int64_t within_ns;
  };
  using Points = std::vector<Point>;

  [[nodiscard]] static std::int64_t offset_at(const Points& points, std::int64_t at_ns);

  std::map<std::string, std::map<std::string, Points>> offsets_;  // by clock and the other one
  std::map<std::string, std::int64_t> to_system_time_ns_;         // by clock
  // From settle() on.
  std::string reference_;
  std::map<std::string, std::vector<const Points*>> ways_;  // from each clock to the reference
};

}  // namespace crossdevice::run
