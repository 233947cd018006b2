// SPDX-License-Identifier: Apache-2.0
/// The typed half of ReplicaContext::merge_call: replicas' arguments regrouped, the function called, its result taken apart.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "crossdevice/core/export.h"
#include "crossdevice/ops/regroup.h"
#include "crossdevice/ops/variable.h"
#include "crossdevice/strategy/replica_nest.h"

namespace crossdevice {

class Strategy;

namespace detail {

/// One replica's merge_call, waiting for the others.
class CROSSDEVICE_EXPORT MergeCallBase {
 public:
  virtual ~MergeCallBase();
  MergeCallBase(const MergeCallBase&) = delete;
  MergeCallBase& operator=(const MergeCallBase&) = delete;
  /// Runs this replica's function for all of `calls`, which are of this one's type, in replica order.
  virtual void execute(Strategy& strategy, std::span<MergeCallBase* const> calls) = 0;
  /// Replicas that pass functions or arguments of different types make different calls.
  [[nodiscard]] virtual const std::type_info& type() const = 0;

 protected:
  MergeCallBase() = default;
};

/// How the replicas' arguments of type T reach the merge function - regrouped, but a variable as itself - and one replica's part of them.
template <class T>
struct MergedArgument {
  using type = typename Regroup<T, PerReplica>::type;
  template <class Source>
  static type merge(std::span<const Source* const> arguments) {
    std::vector<T> values;
    values.reserve(arguments.size());
    for (const Source* argument : arguments) values.push_back(*argument);
    if constexpr (std::is_same_v<T, bool>) {
      return values;  // std::vector<bool> is no span
    } else {
      return regroup(values);
    }
  }
  static T part(const type& merged, std::size_t replica) {
    return Regroup<T, PerReplica>::select(merged, replica);
  }
};
template <class T>
requires std::is_base_of_v<Variable, T>
struct MergedArgument<T> {
  using type = const T&;
  static type merge(std::span<const T* const> arguments) { return *arguments[0]; }
  static type part(type merged, std::size_t /*replica*/) { return merged; }
};

template <class F, class... Args>
class MergeCall final : public MergeCallBase {
 public:
  using Result = std::invoke_result_t<F&, Strategy&,
                                      typename MergedArgument<std::decay_t<const Args&>>::type...>;
  using Local = LocalOf<Result>;

  explicit MergeCall(F& fn, const Args&... args) : fn_(fn), args_(&args...) {}

  void execute(Strategy& strategy, std::span<MergeCallBase* const> calls) override {
    execute(strategy, calls, std::index_sequence_for<Args...>{});
  }
  [[nodiscard]] const std::type_info& type() const override { return typeid(MergeCall); }

  Local take_result() {
    if constexpr (!std::is_void_v<Result>) return std::move(*result_);
  }

 private:
  template <std::size_t... I>
  void execute(Strategy& strategy, std::span<MergeCallBase* const> calls,
               std::index_sequence<I...>) {
    if constexpr (std::is_void_v<Result>) {
      fn_(strategy, merged<I>(calls)...);
    } else {
      const auto& result = fn_(strategy, merged<I>(calls)...);
      using Plain = std::remove_cvref_t<Result>;
      require_one_per_replica_in<Plain>(result, calls.size());
      for (std::size_t r = 0; r < calls.size(); ++r) {
        static_cast<MergeCall*>(calls[r])->result_.emplace(select_local<Plain>(result, r));
      }
    }
  }
  template <std::size_t I>
  decltype(auto) merged(std::span<MergeCallBase* const> calls) {
    using T = std::tuple_element_t<I, std::tuple<Args...>>;
    std::vector<const T*> arguments;
    arguments.reserve(calls.size());
    for (MergeCallBase* call : calls) {
      arguments.push_back(std::get<I>(static_cast<MergeCall*>(call)->args_));
    }
    return MergedArgument<std::decay_t<const T&>>::merge(std::span<const T* const>(arguments));
  }

  struct Nothing {};
  F& fn_;
  std::tuple<const Args*...> args_;
  std::optional<std::conditional_t<std::is_void_v<Result>, Nothing, Local>> result_;
};

}  // namespace detail
}  // namespace crossdevice
