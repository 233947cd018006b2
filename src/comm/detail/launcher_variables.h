// SPDX-License-Identifier: Apache-2.0
/// What launchers write into environment variables, read strictly: every error names the variable and its value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"

namespace crossdevice::detail {

inline constexpr int kMaxWorkers = 1'000'000;
/// PMIx: the name of this process's job, which Open MPI's processes have too.
inline constexpr const char* kPmixNamespaceVariable = "PMIX_NAMESPACE";

/// The whole text as a decimal number without sign or blanks; nothing where it is not one.
[[nodiscard]] std::optional<std::uint64_t> parse_digits(std::string_view text);
/// A port for rank 0 that every worker computes from the same job number: 61440 to 65535, the last 4096, where few systems
/// give out ports by themselves.
[[nodiscard]] std::uint16_t port_of_job(std::uint64_t job);
/// The same on every worker, from a name that only this job has; 0 of the empty one. FNV-1a.
[[nodiscard]] std::uint64_t number_of_job(std::string_view name);
/// Shows what came in an error: cut after 200 bytes, what cannot be printed as \xNN.
[[nodiscard]] std::string printable(std::string_view text);

/// Reads one launcher's variables.
class LauncherVariables {
 public:
  /// `launcher` is the name that messages give it; the source must outlive this.
  LauncherVariables(std::string_view launcher, const EnvironmentSource& source)
      : launcher_(launcher), source_(source) {}

  /// The variable's text; nothing where it is unset or empty.
  [[nodiscard]] std::optional<std::string> find(const char* name) const;
  /// Errors   ValueError: unset or empty.
  [[nodiscard]] std::string require(const char* name) const;

  /// A number in [low, high].
  ///
  /// Errors   ValueError: something else; require_: unset too.
  [[nodiscard]] std::optional<int> find_number(const char* name, int low, int high) const;
  [[nodiscard]] int require_number(const char* name, int low, int high) const;
  /// rank and number of workers, or their local counterparts, where both or neither must be set.
  ///
  /// Errors   ValueError: no numbers, one without the other, a rank that is not below the number.
  struct Place {
    int rank = 0;
    int size = 1;
  };
  [[nodiscard]] std::optional<Place> find_place(const char* rank_name, const char* size_name) const;
  [[nodiscard]] Place require_place(const char* rank_name, const char* size_name) const;

  /// CROSSDEVICE_CHIEF_ADDRESS, which wins over what the launcher says; empty where it is unset.
  [[nodiscard]] std::string find_chief_address() const {
    return find(kChiefAddressVariable).value_or("");
  }

  /// "torchrun: MASTER_PORT: expected a port, got '99999'".
  [[nodiscard]] ValueError error(const char* name, std::string_view expected,
                                 std::string_view got) const;

 private:
  std::string_view launcher_;
  const EnvironmentSource& source_;
};

}  // namespace crossdevice::detail
