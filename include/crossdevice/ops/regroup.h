// SPDX-License-Identifier: Apache-2.0
/// From one nested structure per replica to one structure of distributed values, and back. TF counterparts: regroup, select_replica.
///
/// A nest is a Tensor, IndexedSlices, anything else (a leaf too), or a std::vector, std::array, std::pair, std::tuple or std::map of nests.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"
#include "crossdevice/ops/values.h"

namespace crossdevice {

namespace detail {

/// Errors   ValueError "the replicas' structures differ: replica 0 has 2 elements, replica 1 has 3".
[[noreturn]] CROSSDEVICE_EXPORT void throw_structures_differ(std::size_t size_of_first,
                                                             std::size_t replica, std::size_t size);
/// Errors   ValueError "the replicas' structures differ: replica 1 lacks the key ...".
[[noreturn]] CROSSDEVICE_EXPORT void throw_keys_differ(std::size_t replica);

/// How a T per replica is regrouped. The primary template: any other leaf becomes a std::vector with one element per replica.
template <class T, class Wrap>
struct Regroup {
  using type = std::vector<T>;
  static type regroup(std::span<const T> replicas) { return {replicas.begin(), replicas.end()}; }
  static T select(const type& group, std::size_t replica) { return group.at(replica); }
};

template <class Wrap>
struct Regroup<Tensor, Wrap> {
  using type = Wrap;
  static Wrap regroup(std::span<const Tensor> replicas) { return Wrap(replicas); }
  static Tensor select(const Wrap& group, std::size_t replica) { return group.values()[replica]; }
};

template <class Wrap>
struct Regroup<IndexedSlices, Wrap> {
  using type = Wrap;
  static Wrap regroup(std::span<const IndexedSlices> replicas) {
    return Wrap(std::vector<IndexedSlices>(replicas.begin(), replicas.end()));
  }
  static IndexedSlices select(const Wrap& group, std::size_t replica) {
    return group.slices()[replica];
  }
};

/// Component `get` of every replica's nest.
template <class Part, class T, class Get>
std::vector<Part> project(std::span<const T> replicas, Get get) {
  std::vector<Part> parts;
  parts.reserve(replicas.size());
  for (const T& replica : replicas) parts.push_back(get(replica));
  return parts;
}

template <class T, class Wrap>
struct Regroup<std::vector<T>, Wrap> {
  using Inner = Regroup<T, Wrap>;
  using type = std::vector<typename Inner::type>;
  static type regroup(std::span<const std::vector<T>> replicas) {
    for (std::size_t r = 1; r < replicas.size(); ++r) {
      if (replicas[r].size() != replicas[0].size()) {
        throw_structures_differ(replicas[0].size(), r, replicas[r].size());
      }
    }
    type group;
    for (std::size_t i = 0; i < replicas[0].size(); ++i) {
      const auto parts =
          project<T>(replicas, [i](const std::vector<T>& nest) { return T(nest[i]); });
      group.push_back(Inner::regroup(std::span<const T>(parts)));
    }
    return group;
  }
  static std::vector<T> select(const type& group, std::size_t replica) {
    std::vector<T> nest;
    for (const auto& item : group) nest.push_back(Inner::select(item, replica));
    return nest;
  }
};

template <class T, std::size_t N, class Wrap>
struct Regroup<std::array<T, N>, Wrap> {
  using Inner = Regroup<T, Wrap>;
  using type = std::array<typename Inner::type, N>;
  static type regroup(std::span<const std::array<T, N>> replicas) {
    type group;
    for (std::size_t i = 0; i < N; ++i) {
      const auto parts =
          project<T>(replicas, [i](const std::array<T, N>& nest) { return nest[i]; });
      group[i] = Inner::regroup(std::span<const T>(parts));
    }
    return group;
  }
  static std::array<T, N> select(const type& group, std::size_t replica) {
    std::array<T, N> nest;
    for (std::size_t i = 0; i < N; ++i) nest[i] = Inner::select(group[i], replica);
    return nest;
  }
};

/// std::tuple and std::pair alike.
template <template <class...> class TupleLike, class Wrap, class... Ts>
struct RegroupTuple {
  using type = TupleLike<typename Regroup<Ts, Wrap>::type...>;
  static type regroup(std::span<const TupleLike<Ts...>> replicas) {
    return regroup(replicas, std::index_sequence_for<Ts...>{});
  }
  static TupleLike<Ts...> select(const type& group, std::size_t replica) {
    return select(group, replica, std::index_sequence_for<Ts...>{});
  }

 private:
  template <std::size_t I>
  static auto regroup_part(std::span<const TupleLike<Ts...>> replicas) {
    using Part = std::tuple_element_t<I, TupleLike<Ts...>>;
    const auto parts =
        project<Part>(replicas, [](const TupleLike<Ts...>& nest) { return std::get<I>(nest); });
    return Regroup<Part, Wrap>::regroup(std::span<const Part>(parts));
  }
  template <std::size_t... I>
  static type regroup(std::span<const TupleLike<Ts...>> replicas, std::index_sequence<I...>) {
    return type(regroup_part<I>(replicas)...);
  }
  template <std::size_t... I>
  static TupleLike<Ts...> select(const type& group, std::size_t replica,
                                 std::index_sequence<I...>) {
    return TupleLike<Ts...>(Regroup<Ts, Wrap>::select(std::get<I>(group), replica)...);
  }
};

template <class Wrap, class... Ts>
struct Regroup<std::tuple<Ts...>, Wrap> : RegroupTuple<std::tuple, Wrap, Ts...> {};
template <class Wrap, class A, class B>
struct Regroup<std::pair<A, B>, Wrap> : RegroupTuple<std::pair, Wrap, A, B> {};

template <class K, class T, class Wrap>
struct Regroup<std::map<K, T>, Wrap> {
  using Inner = Regroup<T, Wrap>;
  using type = std::map<K, typename Inner::type>;
  static type regroup(std::span<const std::map<K, T>> replicas) {
    for (std::size_t r = 1; r < replicas.size(); ++r) {
      if (replicas[r].size() != replicas[0].size()) {
        throw_structures_differ(replicas[0].size(), r, replicas[r].size());
      }
      for (const auto& item : replicas[0]) {
        if (!replicas[r].contains(item.first)) throw_keys_differ(r);
      }
    }
    type group;
    for (const auto& item : replicas[0]) {
      const K& key = item.first;
      const auto parts =
          project<T>(replicas, [&key](const std::map<K, T>& nest) { return nest.at(key); });
      group.emplace(key, Inner::regroup(std::span<const T>(parts)));
    }
    return group;
  }
  static std::map<K, T> select(const type& group, std::size_t replica) {
    std::map<K, T> nest;
    for (const auto& item : group) nest.emplace(item.first, Inner::select(item.second, replica));
    return nest;
  }
};

}  // namespace detail

/// The structure with a PerReplica in place of each Tensor and IndexedSlices, and a std::vector in place of each other leaf.
///
/// Errors   ValueError: no replicas, or their structures differ (lengths, keys).
/// TF       always wraps: equal leaves and single replicas too, so that the type does not depend on values.
template <class T>
[[nodiscard]] typename detail::Regroup<T, PerReplica>::type regroup(std::span<const T> replicas) {
  if (replicas.empty()) throw ValueError("regroup needs at least one replica");
  return detail::Regroup<T, PerReplica>::regroup(replicas);
}
template <class T>
[[nodiscard]] auto regroup(const std::vector<T>& replicas) {
  return regroup(std::span<const T>(replicas));
}
/// The same with Mirrored: for values known to be equal.
template <class T>
[[nodiscard]] typename detail::Regroup<T, Mirrored>::type regroup_mirrored(
    std::span<const T> replicas) {
  if (replicas.empty()) throw ValueError("regroup needs at least one replica");
  return detail::Regroup<T, Mirrored>::regroup(replicas);
}

/// The inverse: replica `replica`'s structure. T is the structure that was regrouped.
template <class T>
[[nodiscard]] T select_replica(std::size_t replica,
                               const typename detail::Regroup<T, PerReplica>::type& group) {
  return detail::Regroup<T, PerReplica>::select(group, replica);
}
/// TF's select_replica_mirrored: a PerReplica in the structure does not compile.
template <class T>
[[nodiscard]] T select_replica_mirrored(std::size_t replica,
                                        const typename detail::Regroup<T, Mirrored>::type& group) {
  return detail::Regroup<T, Mirrored>::select(group, replica);
}

}  // namespace crossdevice
