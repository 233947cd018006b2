// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/indexed_slices.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/collective/gpu_reduce.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/reduce_kernel.h"

namespace crossdevice {
namespace {

std::int64_t index_at(const Tensor& indices, std::size_t k) {
  if (indices.dtype() == DType::INT32) return static_cast<const std::int32_t*>(indices.data())[k];
  return static_cast<const std::int64_t*>(indices.data())[k];
}

void set_index(const Tensor& indices, std::size_t k, std::int64_t index) {
  if (indices.dtype() == DType::INT32) {
    static_cast<std::int32_t*>(indices.data())[k] = static_cast<std::int32_t>(index);
  } else {
    static_cast<std::int64_t*>(indices.data())[k] = index;
  }
}

/// The dimensions of one row of values.
std::vector<std::int64_t> row_dims(const Tensor& values) {
  const std::span<const std::int64_t> dims = values.shape().dims();
  return {dims.begin() + 1, dims.end()};
}

Shape with_rows(std::size_t rows, const Tensor& like) {
  std::vector<std::int64_t> dims = row_dims(like);
  dims.insert(dims.begin(), static_cast<std::int64_t>(rows));
  return Shape(std::span<const std::int64_t>(dims));
}

std::size_t row_elements(const Tensor& values) {
  std::size_t elements = 1;
  for (const std::int64_t dim : row_dims(values)) elements *= static_cast<std::size_t>(dim);
  return elements;
}

char* row(const Tensor& values, std::size_t k, std::size_t row_size_bytes) {
  return static_cast<char*>(values.data()) + k * row_size_bytes;
}

void require_summable(const IndexedSlices& slices, const char* what) {
  if (slices.dtype() == DType::BOOL) throw ValueError(fmt::format("{}: bool has no sum", what));
}

bool is_on_host(const IndexedSlices& slices) {
  return slices.values.device().is_host() && slices.indices.device().is_host();
}

IndexedSlices on_host(const IndexedSlices& slices) {
  return is_on_host(slices) ? slices : copy_to_device(slices, "CPU:0");
}

std::vector<Tensor> tensors_of(std::span<const IndexedSlices> slices,
                               Tensor IndexedSlices::*which) {
  std::vector<Tensor> tensors;
  tensors.reserve(slices.size());
  for (const IndexedSlices& part : slices) tensors.push_back(part.*which);
  return tensors;
}

bool are_on_gpus(std::span<const Tensor> tensors) {
  return std::none_of(tensors.begin(), tensors.end(),
                      [](const Tensor& tensor) { return tensor.device().is_host(); });
}

/// `all` has room for the rows of all slices. Nothing is converted, and nothing lies on a host.
void concatenate_on_gpus(std::span<const IndexedSlices> slices, const IndexedSlices& all) {
  gpu_gather(tensors_of(slices, &IndexedSlices::values), 0, std::span<const Tensor>(&all.values, 1),
             {});
  gpu_gather(tensors_of(slices, &IndexedSlices::indices), 0,
             std::span<const Tensor>(&all.indices, 1), {});
}

}  // namespace

void IndexedSlices::validate() const {
  if (!values || !indices) throw ValueError("IndexedSlices need values and indices");
  values.device().require_present();
  indices.device().require_present();
  if (indices.dtype() != DType::INT32 && indices.dtype() != DType::INT64) {
    throw ValueError(fmt::format("IndexedSlices: indices must be int32 or int64, not {}",
                                 to_string(indices.dtype())));
  }
  if (indices.shape().rank() != 1) {
    throw ValueError(fmt::format("IndexedSlices: indices must be a vector, not of shape {}",
                                 indices.shape().to_string()));
  }
  if (values.shape().rank() == 0 || values.shape()[0] != indices.shape()[0]) {
    throw ValueError(
        fmt::format("IndexedSlices: {} indices need as many rows of values, not shape {}",
                    indices.shape()[0], values.shape().to_string()));
  }
  if (!dense_shape) return;
  const std::span<const std::int64_t> dense = dense_shape->dims();
  const std::vector<std::int64_t> rows = row_dims(values);
  if (dense.empty() || !std::equal(dense.begin() + 1, dense.end(), rows.begin(), rows.end())) {
    throw ValueError(fmt::format("IndexedSlices: dense_shape {} does not have rows like values {}",
                                 dense_shape->to_string(), values.shape().to_string()));
  }
}

Tensor to_dense(const IndexedSlices& slices) {
  slices.validate();
  require_summable(slices, "to_dense");
  if (!slices.dense_shape) throw ValueError("to_dense needs IndexedSlices with dense_shape");
  if (!is_on_host(slices)) return copy_to_device(to_dense(on_host(slices)), slices.device());
  slices.values.readiness().wait();
  slices.indices.readiness().wait();
  const std::int64_t num_rows = (*slices.dense_shape)[0];
  const std::size_t count = slices.indices.num_elements();
  for (std::size_t k = 0; k < count; ++k) {
    const std::int64_t index = index_at(slices.indices, k);
    if (index < 0 || index >= num_rows) {
      throw ValueError(
          fmt::format("to_dense: index {} at position {} is outside [0, {})", index, k, num_rows));
    }
  }
  Tensor dense = Tensor::zeros(slices.dtype(), *slices.dense_shape, slices.device());
  const std::size_t elements = row_elements(slices.values);
  const std::size_t row_bytes = elements * size_in_bytes(slices.dtype());
  for (std::size_t k = 0; k < count; ++k) {
    const auto index = static_cast<std::size_t>(index_at(slices.indices, k));
    accumulate_elements(slices.dtype(), row(dense, index, row_bytes),
                        row(slices.values, k, row_bytes), elements);
  }
  return dense;
}

IndexedSlices copy_to_device(const IndexedSlices& slices, const Device& device) {
  return {copy_to_device(slices.values, device), copy_to_device(slices.indices, device),
          slices.dense_shape};
}

IndexedSlices copy_to_device(const IndexedSlices& slices, const Device& device,
                             const detail::WaitLimit& limit) {
  return {copy_to_device(slices.values, device, limit),
          copy_to_device(slices.indices, device, limit), slices.dense_shape};
}

void require_concatenable(std::span<const IndexedSlices> slices) {
  if (slices.empty()) throw ValueError("concatenate needs at least one IndexedSlices");
  MaybeShape dense_shape;
  for (std::size_t r = 0; r < slices.size(); ++r) {
    const IndexedSlices& part = slices[r];
    part.validate();
    if (part.dtype() != slices[0].dtype() || row_dims(part.values) != row_dims(slices[0].values)) {
      throw ValueError(
          fmt::format("sparse values differ: replica 0 {} rows of {}, replica {} {} rows of {}",
                      to_string(slices[0].dtype()), slices[0].values.shape().to_string(), r,
                      to_string(part.dtype()), part.values.shape().to_string()));
    }
    if (dense_shape && part.dense_shape && !(dense_shape == part.dense_shape)) {
      throw ValueError(fmt::format("dense shapes differ: {} before, replica {} has {}",
                                   dense_shape->to_string(), r, part.dense_shape->to_string()));
    }
    if (!dense_shape) dense_shape = part.dense_shape;
  }
}

IndexedSlices concatenate(std::span<const IndexedSlices> slices, const Device& device) {
  require_concatenable(slices);
  bool is_on_gpus = !device.is_host() && are_on_gpus(tensors_of(slices, &IndexedSlices::values)) &&
                    are_on_gpus(tensors_of(slices, &IndexedSlices::indices));
  const bool is_on_hosts =
      device.is_host() && std::all_of(slices.begin(), slices.end(), is_on_host);
  std::size_t rows = 0;
  MaybeShape dense_shape;
  DType index_dtype = slices[0].indices.dtype();
  for (const IndexedSlices& part : slices) {
    if (!dense_shape) dense_shape = part.dense_shape;
    if (part.indices.dtype() != index_dtype) {
      index_dtype = DType::INT64;
      is_on_gpus = false;  // no kernel converts indices
    }
    rows += part.indices.num_elements();
  }
  if (!is_on_gpus && !is_on_hosts) {
    std::vector<IndexedSlices> there;
    there.reserve(slices.size());
    for (const IndexedSlices& part : slices) there.push_back(on_host(part));
    return copy_to_device(concatenate(there, "CPU:0"), device);
  }
  IndexedSlices all{Tensor::empty(slices[0].dtype(), with_rows(rows, slices[0].values), device),
                    Tensor::empty(index_dtype, Shape{rows}, device), dense_shape};
  if (is_on_gpus) {
    concatenate_on_gpus(slices, all);
    return all;
  }
  std::size_t at = 0;
  for (const IndexedSlices& part : slices) {
    part.values.readiness().wait();
    part.indices.readiness().wait();
    const std::size_t count = part.indices.num_elements();
    const std::size_t row_bytes = row_elements(part.values) * size_in_bytes(part.dtype());
    copy_bytes(row(all.values, at, row_bytes), part.values.data(), count * row_bytes,
               StoreMode::CACHED);
    for (std::size_t k = 0; k < count; ++k) {
      set_index(all.indices, at + k, index_at(part.indices, k));
    }
    at += count;
  }
  return all;
}

IndexedSlices sum_duplicates(const IndexedSlices& slices) {
  slices.validate();
  require_summable(slices, "sum_duplicates");
  if (!is_on_host(slices)) return copy_to_device(sum_duplicates(on_host(slices)), slices.device());
  slices.values.readiness().wait();
  slices.indices.readiness().wait();
  const std::size_t count = slices.indices.num_elements();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return index_at(slices.indices, a) < index_at(slices.indices, b);
  });
  std::size_t distinct = 0;
  for (std::size_t k = 0; k < count; ++k) {
    if (k == 0 || index_at(slices.indices, order[k]) != index_at(slices.indices, order[k - 1])) {
      ++distinct;
    }
  }
  IndexedSlices summed{
      Tensor::zeros(slices.dtype(), with_rows(distinct, slices.values), slices.device()),
      Tensor::empty(slices.indices.dtype(), Shape{distinct}, slices.device()), slices.dense_shape};
  const std::size_t elements = row_elements(slices.values);
  const std::size_t row_bytes = elements * size_in_bytes(slices.dtype());
  std::size_t at = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const std::int64_t index = index_at(slices.indices, order[k]);
    if (k > 0 && index != index_at(slices.indices, order[k - 1])) ++at;
    set_index(summed.indices, at, index);
    accumulate_elements(slices.dtype(), row(summed.values, at, row_bytes),
                        row(slices.values, order[k], row_bytes), elements);
  }
  return summed;
}

}  // namespace crossdevice
