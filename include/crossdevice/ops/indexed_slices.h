// SPDX-License-Identifier: Apache-2.0
/// Sparse gradients: some rows of a larger tensor. TF counterpart: tf.IndexedSlices.
#pragma once

#include <span>

#include "crossdevice/core/export.h"
#include "crossdevice/core/shape.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/device/wait_limit.h"

namespace crossdevice {

/// Row k of `values` belongs to row indices[k] of the dense tensor; a row may be named several times, its contributions add.
///
/// Shapes   values (n, ...), indices (n) of int32 or int64, dense_shape (rows, ...) where known.
struct CROSSDEVICE_EXPORT IndexedSlices {
  Tensor values;
  Tensor indices;
  MaybeShape dense_shape{};

  [[nodiscard]] const Device& device() const { return values.device(); }
  [[nodiscard]] DType dtype() const { return values.dtype(); }
  /// Errors   ValueError: indices are no vector of int32 or int64, or not one per row of values; dense_shape's rows differ from those of values;
  ///          an element is not on a present device.
  void validate() const;
};

/// The dense tensor: zeros plus every row at its index; repeated indices add.
///
/// Cost     of slices on a GPU also a copy to the host, where it is worked out, and back.
/// Errors   ValueError: no dense_shape, an index outside it, or as validate(). bool has no sum.
[[nodiscard]] CROSSDEVICE_EXPORT Tensor to_dense(const IndexedSlices& slices);

/// A fresh copy on `device`; a missing dense_shape stays missing.
[[nodiscard]] CROSSDEVICE_EXPORT IndexedSlices copy_to_device(const IndexedSlices& slices,
                                                              const Device& device);
/// The same for a part of an operation, which waits as `limit` says.
[[nodiscard]] CROSSDEVICE_EXPORT IndexedSlices copy_to_device(const IndexedSlices& slices,
                                                              const Device& device,
                                                              const detail::WaitLimit& limit);

/// What concatenate() asks of its arguments.
///
/// Errors   as concatenate().
CROSSDEVICE_EXPORT void require_concatenable(std::span<const IndexedSlices> slices);

/// All rows of all slices, in order, on `device`: nothing is lost, sorted or merged.
///
/// Shapes   equal dtypes and equal dense shapes (where known); indices of mixed types become int64.
/// Order    on GPUs alone, and without mixed indices, enqueued on the tensors' streams; else complete on return.
/// Errors   ValueError: the list is empty, or they differ; names the replicas.
[[nodiscard]] CROSSDEVICE_EXPORT IndexedSlices concatenate(std::span<const IndexedSlices> slices,
                                                           const Device& device);

/// Rows with the same index added up, indices ascending: what TF calls de-duplication. On GPUs as to_dense().
[[nodiscard]] CROSSDEVICE_EXPORT IndexedSlices sum_duplicates(const IndexedSlices& slices);

}  // namespace crossdevice
