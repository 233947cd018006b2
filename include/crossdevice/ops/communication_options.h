// SPDX-License-Identifier: Apache-2.0
/// How an operation communicates. TF counterpart: tf.distribute.experimental.CommunicationOptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/int64.h"

namespace crossdevice {

/// AUTO: the fastest that works for these devices, sizes and workers. RING: the host engines. NCCL: GPUs only, with a documented fall-back.
enum class CommunicationImplementation : std::uint8_t { AUTO, RING, NCCL };

[[nodiscard]] CROSSDEVICE_EXPORT std::string_view to_string(
    CommunicationImplementation implementation);
/// TF also takes names, in any case.
///
/// Errors   ValueError: not "AUTO", "RING" or "NCCL".
[[nodiscard]] CROSSDEVICE_EXPORT CommunicationImplementation
communication_implementation_from_string(std::string_view name);

/// Every op honours every field.
struct CROSSDEVICE_EXPORT CommunicationOptions {
  /// Tensors are grouped, last one first, until a pack holds more than this many bytes; a pack is the unit of scheduling and completion.
  /// 0: the op's own rule (num_packs, ...).
  Int64 bytes_per_pack = 0;
  /// The operation's deadline, counted from the moment it reaches the head of its stream. Nothing: that of the ops object, where it was given
  /// one, else CROSSDEVICE_DEFAULT_TIMEOUT, else none. 0: none.
  std::optional<double> timeout_seconds = std::nullopt;
  CommunicationImplementation implementation = CommunicationImplementation::AUTO;
  /// The bits of results depend on the values, the replica order and which replicas share a worker alone: not on packing, threads, algorithm,
  /// timing or where workers are.
  bool deterministic = false;
  /// And not on which replicas share a worker: one process with eight replicas, two with four and eight with one end with the same bits. Says `deterministic`
  /// too. Price: a worker no longer combines what its own R replicas have before it sends. Over a transport W workers each send (W - 1)/W (R + 1) S
  /// bytes for values of S bytes, deterministic ones 2 (W - 1)/W S: two hosts of eight replicas 4.5 S each instead of S. In shared memory, and for what is
  /// small or of one replica per worker, it costs nothing.
  bool grouping_independent = false;

  [[nodiscard]] bool is_deterministic() const { return deterministic || grouping_independent; }
  /// Errors   ValueError: negative bytes_per_pack or timeout_seconds, NaN timeout_seconds.
  void validate() const {
    const bool has_timeout = timeout_seconds.has_value();
    if (bytes_per_pack < 0 || (has_timeout && !(*timeout_seconds >= 0))) throw_invalid();
  }
  /// These options, overridden by every field of `other` that is not at its default (TF's rule: one cannot go back to AUTO or 0;
  /// a timeout of 0 does override).
  [[nodiscard]] CommunicationOptions merge(const CommunicationOptions& other) const;
  /// From now on.
  [[nodiscard]] Deadline deadline() const;

  friend bool operator==(const CommunicationOptions&, const CommunicationOptions&) = default;

 private:
  [[noreturn]] void throw_invalid() const;
};

}  // namespace crossdevice
