// SPDX-License-Identifier: Apache-2.0
// What members tell each other inside a round or a call, which those below only carry: the sizes and the tensors that each shows, the particulars of calls that
// differ, where rank 0 listens. Refused, or what is read lies within what came and reads the same when written anew.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crossdevice/comm/call_difference.h"
#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/tensor.h"

#include "collective/detail/shown_tensors.h"
#include "comm/detail/chief_address.h"
#include "comm/detail/wire.h"
#include "fuzz/fuzz_target.h"

namespace crossdevice {
namespace {

constexpr std::size_t kMaxWorkers = 4;

/// Nothing: refused, with words.
template <class Read>
auto value_or_error(Read read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const InternalError& error) {
    FUZZ_EXPECT(error.what()[0] != '\0');
    return std::nullopt;
  }
}

/// Any, but mostly of one that may be true.
std::uint64_t size_of(fuzz::Input& input) {
  return input.below(4) == 1 ? input.number<std::uint64_t>() : input.number<std::uint16_t>();
}

void check_places(fuzz::Input& input) {
  std::vector<detail::ShownSize> sizes(1 + input.below(kMaxWorkers));
  for (detail::ShownSize& each : sizes) each = {size_of(input), size_of(input)};
  const auto parts = value_or_error([&] { return detail::place_shown(sizes); });
  if (!parts.has_value()) return;
  FUZZ_EXPECT(parts->size() == sizes.size());
  std::size_t end = 0;
  for (std::size_t rank = 0; rank < parts->size(); ++rank) {
    const Interval& part = (*parts)[rank];
    FUZZ_EXPECT(part.begin == end && part.count == sizes[rank].total_bytes && part.end() >= end);
    end = part.end();
  }
  FUZZ_EXPECT(end <= static_cast<std::size_t>(INT64_MAX));
}

/// A description by someone who knows how, but not what is true.
std::string description_of(fuzz::Input& input) {
  std::vector<std::uint64_t> words{size_of(input)};
  while (!input.is_empty() && words.size() < 24) {
    words.push_back(input.below(8) == 1 ? input.number<std::uint64_t>() : input.below(24));
  }
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof words[0]};
}

void check_tensors(fuzz::Input& input) {
  const std::uint64_t own_size = size_of(input);
  const std::size_t num_data = input.number<std::uint8_t>();
  std::string text = input.coin() ? input.rest() : description_of(input);
  detail::ShownSize size{.description_bytes = text.size(), .total_bytes = 0};
  if (own_size % 8 == 1) size.description_bytes = own_size;
  text.resize((text.size() + 63) / 64 * 64 + num_data, 'x');
  size.total_bytes = text.size();
  // As in a row: aligned, and with nothing behind it that may be read.
  constexpr std::align_val_t kAlignment{64};
  const auto give_back = [](std::byte* bytes) { ::operator delete(bytes, kAlignment); };
  const std::unique_ptr<std::byte, decltype(give_back)> block(
      static_cast<std::byte*>(::operator new(text.size(), kAlignment)), give_back);
  std::memcpy(block.get(), text.data(), text.size());
  const std::span<const std::byte> whole(block.get(), text.size());
  const auto tensors = value_or_error([&] { return detail::read_shown(whole, size, 3); });
  if (!tensors.has_value()) return;
  std::vector<Tensor> views;
  for (const RemoteTensor& tensor : *tensors) {
    const auto count = static_cast<std::size_t>(tensor.shape.num_elements());
    FUZZ_EXPECT((tensor.data == nullptr) == (count == 0));
    if (tensor.data == nullptr) {
      views.push_back(Tensor::empty(tensor.dtype, tensor.shape, "CPU:0"));
      continue;
    }
    const auto at = static_cast<std::size_t>(tensor.data - block.get());
    FUZZ_EXPECT(tensor.data >= block.get() && at <= whole.size());
    FUZZ_EXPECT(count * size_in_bytes(tensor.dtype) <= whole.size() - at);
    views.push_back(
        Tensor::view(static_cast<const void*>(tensor.data), tensor.dtype, tensor.shape, "CPU:0"));
  }
  const std::vector<std::uint64_t> description = detail::describe(views);
  const detail::ShownSize anew = detail::shown_size(description, views);
  std::vector<std::byte> written(anew.total_bytes);
  detail::write_shown(description, views, written.data());
  const std::vector<RemoteTensor> again = detail::read_shown(written, anew, 3);
  FUZZ_EXPECT(again.size() == tensors->size());
  for (std::size_t i = 0; i < again.size(); ++i) {
    FUZZ_EXPECT(again[i].dtype == (*tensors)[i].dtype && again[i].shape == (*tensors)[i].shape);
    FUZZ_EXPECT(again[i].data == nullptr ||
                std::memcmp(again[i].data, (*tensors)[i].data, views[i].size_bytes()) == 0);
  }
}

void check_calls(fuzz::Input& input) {
  std::vector<ToldCall> calls(2 + input.below(kMaxWorkers));
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    calls[rank].rank = static_cast<int>(rank);
    const std::string_view operation = input.bytes(sizeof(GroupOperation));
    std::memcpy(static_cast<void*>(&calls[rank].operation), operation.data(), operation.size());
    const std::string details = input.coin() ? input.text() : input.rest();
    calls[rank].details = decode_details(details);
    FUZZ_EXPECT(decode_details(encode_details(calls[rank].details)) == calls[rank].details);
  }
  FUZZ_EXPECT(describe_difference(calls).starts_with("workers make different calls: rank 0 "));
}

/// Another launcher's exchange, whose answers may be anything.
class ToldResolver final : public ClusterResolver {
 public:
  ToldResolver(int num_workers, std::vector<std::string> words)
      : num_workers_(num_workers), words_(std::move(words)) {}
  [[nodiscard]] bool can_all_gather() const override { return true; }

 protected:
  [[nodiscard]] WorkerIdentity identity_implementation() const override {
    WorkerIdentity identity;
    identity.rank = 1;
    identity.num_workers = num_workers_;
    return identity;
  }
  /// The lengths first, then as many bytes of each.
  void all_gather_implementation(std::span<const std::byte> mine,
                                 std::span<std::byte> all) const override {
    const bool are_lengths = std::exchange(are_lengths_, false);
    for (std::size_t rank = 0; rank < words_.size(); ++rank) {
      std::string told = words_[rank];
      if (are_lengths) told = detail::WireWriter().number(std::uint64_t{told.size()}).take();
      if (rank == 1) told.assign(reinterpret_cast<const char*>(mine.data()), mine.size());
      std::memcpy(all.data() + rank * mine.size(), told.data(), std::min(mine.size(), told.size()));
    }
  }

 private:
  int num_workers_;
  std::vector<std::string> words_;
  mutable bool are_lengths_ = true;
};

void check_chief(fuzz::Input& input) {
  std::vector<std::string> words(2 + input.below(kMaxWorkers - 1));
  for (std::string& each : words) each = input.text();
  const ToldResolver resolver(static_cast<int>(words.size()), words);
  try {
    const detail::AgreedChief chief = detail::agree_on_chief(resolver, 1);
    FUZZ_EXPECT(!chief.addresses.empty() && chief.listener == nullptr);
    for (const std::string& each : chief.addresses) FUZZ_EXPECT(!each.empty());
  } catch (const UnavailableError& error) {
    FUZZ_EXPECT(error.what()[0] != '\0');
  } catch (const ValueError& error) {
    FUZZ_EXPECT(error.what()[0] != '\0');
  }
}

}  // namespace
}  // namespace crossdevice

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::silence_log();
  crossdevice::fuzz::Input input(data, size);
  switch (input.below(4)) {
    case 0:
      crossdevice::check_places(input);
      break;
    case 1:
      crossdevice::check_tensors(input);
      break;
    case 2:
      crossdevice::check_calls(input);
      break;
    default:
      crossdevice::check_chief(input);
  }
  return 0;
}
