// SPDX-License-Identifier: Apache-2.0
/// Which all-reduce algorithm is for tensors of which size. TF counterparts: all_reduce_spec, AllReduceSpecTuple.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/core/export.h"
#include "crossdevice/core/int64.h"

namespace crossdevice {

/// One algorithm and up to which size it is used.
struct CROSSDEVICE_EXPORT AllReduceSpecTuple {
  /// One of
  ///   nccl                   all devices at once
  ///   xring                  a ring through all devices; `shards` sub-chunks, each with a ring of its own
  ///   rechd                  recursive halving and doubling
  ///   pscpu                  every part has an owner: the first devices of `shards` workers; tensors take the workers in turns
  ///   psgpu                  the same with `shards` of all devices as owners
  ///   nccl/xring, nccl/rechd, nccl/pscpu
  ///                          first within each worker, then among the first devices of the workers
  ///   pscpu/pscpu            the same, with the first `shards` workers as owners
  std::string algorithm;
  /// Into how many parts, reduced in parallel, each tensor is split: 1 to 1024. There may be more than workers or devices.
  int shards = 1;
  /// The most bytes a tensor (of one replica) may have; -1: no limit.
  Int64 limit = -1;
  friend bool operator==(const AllReduceSpecTuple&, const AllReduceSpecTuple&) = default;
};

/// Algorithms with ascending limits; the last one takes what is left. A tensor takes the first one whose limit it does not exceed.
///
///   AllReduceSpec{"pscpu/pscpu", 2, -1}                         one for all
///   AllReduceSpec{{"nccl", 2, 1024}, {"pscpu/pscpu", 2, -1}}    by size
///   AllReduceSpec("nccl#2:1k:pscpu/pscpu#2")                    the same as text
///
/// Text     algorithm ["#" shards] { ":" limit ":" algorithm ["#" shards] }, without blanks; a limit is digits and then nothing, K or k, M,
///          G or T, which are powers of 1024.
/// Errors   ValueError: no algorithm, an unknown one, shards outside 1 to 1024, limits that do not ascend or are negative, a last one
///          that is not -1, a text that is not of this form.
/// TF       limits are bytes, as documented (TF's code compares elements), and must ascend; a string is parsed (TF's core takes it for an
///          algorithm's name); "rechd" alone is an addition, "collective" is none of these ops' algorithms.
class CROSSDEVICE_EXPORT AllReduceSpec {
 public:
  AllReduceSpec(std::initializer_list<AllReduceSpecTuple> tuples);
  AllReduceSpec(const char* algorithm, int shards, Int64 limit);
  // NOLINTBEGIN(google-explicit-constructor): TF takes a string or a tuple
  AllReduceSpec(const char* text);
  AllReduceSpec(std::string_view text);
  AllReduceSpec(const std::string& text);
  // NOLINTEND(google-explicit-constructor)
  /// For lists that are made at run time.
  [[nodiscard]] static AllReduceSpec from_tuples(std::vector<AllReduceSpecTuple> tuples);

  [[nodiscard]] std::span<const AllReduceSpecTuple> tuples() const { return tuples_; }
  /// Which tuple a tensor of `size_bytes` takes.
  [[nodiscard]] std::size_t index_for(std::size_t size_bytes) const;
  /// As text.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const AllReduceSpec&, const AllReduceSpec&) = default;

 private:
  explicit AllReduceSpec(std::vector<AllReduceSpecTuple>&& tuples);
  std::vector<AllReduceSpecTuple> tuples_;
};

}  // namespace crossdevice
