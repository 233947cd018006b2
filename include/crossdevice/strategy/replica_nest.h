// SPDX-License-Identifier: Apache-2.0
/// How nested structures pass between one replica and all of them: their leaves, and one replica's part of a distributed nest.
///
/// A nest is a leaf or a std::vector, std::array, std::pair, std::tuple or std::map of nests (see ops/regroup.h).
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "crossdevice/core/export.h"
#include "crossdevice/ops/values.h"

namespace crossdevice::detail {

/// One leaf of a replica's nest: a dense or a sparse value and, where the call replaces it, the handle to set.
struct ReplicaLeaf {
  const Tensor* tensor = nullptr;
  const IndexedSlices* slices = nullptr;
  Tensor* tensor_result = nullptr;
  IndexedSlices* slices_result = nullptr;
};

/// Visits the Tensors and IndexedSlices of a nest in order. kIsNest is false for a type with any other leaf.
template <class T>
struct TensorNest {
  static constexpr bool kIsNest = false;
};
template <>
struct TensorNest<Tensor> {
  static constexpr bool kIsNest = true;
  static void collect(Tensor& leaf, std::vector<ReplicaLeaf>& leaves) {
    leaves.push_back({.tensor = &leaf, .tensor_result = &leaf});
  }
  static void collect(const Tensor& leaf, std::vector<ReplicaLeaf>& leaves) {
    leaves.push_back({.tensor = &leaf});
  }
};
template <>
struct TensorNest<IndexedSlices> {
  static constexpr bool kIsNest = true;
  static void collect(IndexedSlices& leaf, std::vector<ReplicaLeaf>& leaves) {
    leaves.push_back({.slices = &leaf, .slices_result = &leaf});
  }
  static void collect(const IndexedSlices& leaf, std::vector<ReplicaLeaf>& leaves) {
    leaves.push_back({.slices = &leaf});
  }
};
template <class Item>
struct TensorRange {
  static constexpr bool kIsNest = TensorNest<Item>::kIsNest;
  template <class Range>
  static void collect(Range& range, std::vector<ReplicaLeaf>& leaves) {
    for (auto& item : range) TensorNest<Item>::collect(item, leaves);
  }
};
template <class T>
struct TensorNest<std::vector<T>> : TensorRange<T> {};
template <class T, std::size_t N>
struct TensorNest<std::array<T, N>> : TensorRange<T> {};
template <class... Ts>
struct TensorTuple {
  static constexpr bool kIsNest = (TensorNest<Ts>::kIsNest && ...);
  template <class TupleLike>
  static void collect(TupleLike& nest, std::vector<ReplicaLeaf>& leaves) {
    std::apply([&leaves](auto&... items) { (TensorNest<Ts>::collect(items, leaves), ...); }, nest);
  }
};
template <class... Ts>
struct TensorNest<std::tuple<Ts...>> : TensorTuple<Ts...> {};
template <class A, class B>
struct TensorNest<std::pair<A, B>> : TensorTuple<A, B> {};
template <class K, class T>
struct TensorNest<std::map<K, T>> {
  static constexpr bool kIsNest = TensorNest<T>::kIsNest;
  template <class Map>
  static void collect(Map& map, std::vector<ReplicaLeaf>& leaves) {
    for (auto& item : map) TensorNest<T>::collect(item.second, leaves);
  }
};

/// Component `replica` of a dense value.
///
/// Errors   ValueError: there is no such component, or the value is sparse.
[[nodiscard]] CROSSDEVICE_EXPORT Tensor local_component(const DistributedValues& value,
                                                        std::size_t replica);
/// Errors   ValueError: `value` has another number of components than there are replicas, or is sparse.
CROSSDEVICE_EXPORT void require_one_per_replica(const DistributedValues& value,
                                                std::size_t num_replicas);

/// A nest with distributed leaves, seen one leaf at a time: type has a Tensor in place of each PerReplica and Mirrored; other leaves stay
/// what they are. kIsDistributed: there is at least one.
template <class T>
struct DistributedNest {
  using type = T;
  static constexpr bool kIsDistributed = false;
  template <class Fn>
  static const T& map(const T& leaf, const Fn& /*fn*/) {
    return leaf;
  }
};
template <>
struct DistributedNest<void> {
  using type = void;
  static constexpr bool kIsDistributed = false;
};
template <class T>
struct DistributedLeaf {
  using type = Tensor;
  static constexpr bool kIsDistributed = true;
  template <class Fn>
  static Tensor map(const T& leaf, const Fn& fn) {
    return fn(leaf);
  }
};
template <>
struct DistributedNest<PerReplica> : DistributedLeaf<PerReplica> {};
template <>
struct DistributedNest<Mirrored> : DistributedLeaf<Mirrored> {};
template <class T>
struct DistributedNest<std::vector<T>> {
  using type = std::vector<typename DistributedNest<T>::type>;
  static constexpr bool kIsDistributed = DistributedNest<T>::kIsDistributed;
  template <class Fn>
  static type map(const std::vector<T>& nest, const Fn& fn) {
    type result;
    result.reserve(nest.size());
    for (const auto& item : nest) result.push_back(DistributedNest<T>::map(item, fn));
    return result;
  }
};
template <class T, std::size_t N>
struct DistributedNest<std::array<T, N>> {
  using type = std::array<typename DistributedNest<T>::type, N>;
  static constexpr bool kIsDistributed = DistributedNest<T>::kIsDistributed;
  template <class Fn>
  static type map(const std::array<T, N>& nest, const Fn& fn) {
    return std::apply(
        [&fn](const auto&... items) { return type{DistributedNest<T>::map(items, fn)...}; }, nest);
  }
};
template <class... Ts>
struct DistributedNest<std::tuple<Ts...>> {
  using type = std::tuple<typename DistributedNest<Ts>::type...>;
  static constexpr bool kIsDistributed = (DistributedNest<Ts>::kIsDistributed || ...);
  template <class Fn>
  static type map(const std::tuple<Ts...>& nest, const Fn& fn) {
    return std::apply(
        [&fn](const Ts&... items) { return type(DistributedNest<Ts>::map(items, fn)...); }, nest);
  }
};
template <class A, class B>
struct DistributedNest<std::pair<A, B>> {
  using type = std::pair<typename DistributedNest<A>::type, typename DistributedNest<B>::type>;
  static constexpr bool kIsDistributed =
      DistributedNest<A>::kIsDistributed || DistributedNest<B>::kIsDistributed;
  template <class Fn>
  static type map(const std::pair<A, B>& nest, const Fn& fn) {
    return type(DistributedNest<A>::map(nest.first, fn), DistributedNest<B>::map(nest.second, fn));
  }
};
template <class K, class T>
struct DistributedNest<std::map<K, T>> {
  using type = std::map<K, typename DistributedNest<T>::type>;
  static constexpr bool kIsDistributed = DistributedNest<T>::kIsDistributed;
  template <class Fn>
  static type map(const std::map<K, T>& nest, const Fn& fn) {
    type result;
    for (const auto& item : nest) {
      result.emplace(item.first, DistributedNest<T>::map(item.second, fn));
    }
    return result;
  }
};

/// What one replica gets of a T.
template <class T>
using LocalOf = typename DistributedNest<std::remove_cvref_t<T>>::type;

/// Replica `replica`'s part of a distributed nest; anything else as it is.
template <class T>
[[nodiscard]] decltype(auto) select_local(const T& value, std::size_t replica) {
  if constexpr (DistributedNest<T>::kIsDistributed) {
    return DistributedNest<T>::map(
        value, [replica](const DistributedValues& leaf) { return local_component(leaf, replica); });
  } else {
    return (value);
  }
}

/// Throws unless every distributed leaf has one dense component per replica.
template <class T>
void require_one_per_replica_in(const T& value, std::size_t num_replicas) {
  if constexpr (DistributedNest<T>::kIsDistributed) {
    (void)DistributedNest<T>::map(value, [num_replicas](const DistributedValues& leaf) {
      require_one_per_replica(leaf, num_replicas);
      return Tensor();
    });
  }
}

/// How run passes an argument of deduced type A&& to the replicas: parts of distributed nests by value, anything else by reference, a
/// temporary as const.
template <class A>
using ReplicaArgument = std::conditional_t<
    DistributedNest<std::remove_cvref_t<A>>::kIsDistributed, LocalOf<A>,
    std::conditional_t<std::is_lvalue_reference_v<A>, A, const std::remove_reference_t<A>&>>;

template <class A>
[[nodiscard]] ReplicaArgument<A> replica_argument(std::remove_reference_t<A>& value,
                                                  std::size_t replica) {
  if constexpr (DistributedNest<std::remove_cvref_t<A>>::kIsDistributed) {
    return select_local<std::remove_cvref_t<A>>(value, replica);
  } else {
    return value;
  }
}

}  // namespace crossdevice::detail

namespace crossdevice {

/// A nest whose leaves are all Tensor or IndexedSlices: what a replica can all-reduce.
template <class T>
concept TensorStructure = detail::TensorNest<T>::kIsNest;

/// A nest with at least one PerReplica or Mirrored leaf.
template <class T>
concept DistributedStructure = detail::DistributedNest<std::remove_cvref_t<T>>::kIsDistributed;

}  // namespace crossdevice
