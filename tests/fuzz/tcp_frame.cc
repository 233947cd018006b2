// SPDX-License-Identifier: Apache-2.0
// Heads and last words of the TCP transport, and UCX's heads around them: refused, or what was said, which is never more than there is.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "comm/detail/tcp_message.h"
#include "comm/detail/wire.h"
#include "comm/ucx/ucx_frame.h"
#include "fuzz/fuzz_target.h"

namespace crossdevice::detail {
namespace {

constexpr int kNumRanks = 3;

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

void check_tcp_head(const std::string& text, const SaidOperations& said) {
  const std::size_t size = tcp_head_size(bytes_of(text));
  if (size == 0 || size > text.size()) return;
  const std::span<const std::byte> bytes = bytes_of(text).first(size);
  const TcpHead head = decode_tcp_head(bytes, said);
  FUZZ_EXPECT(std::ranges::equal(encode_tcp_head(head, said).view(), bytes));
  switch (head.kind) {
    case TcpFrameKind::MESSAGE:
      FUZZ_EXPECT(head.payload_size <= kMaxTcpPayloadBytes);
      FUZZ_EXPECT(head.offset + head.payload_size >= head.offset);
      FUZZ_EXPECT(head.offset + head.payload_size <= head.size);
      return;
    case TcpFrameKind::STOPPED:
      FUZZ_EXPECT(head.payload_size <= kMaxStopBytes);
      return;
    case TcpFrameKind::GOODBYE:
      FUZZ_EXPECT(head.payload_size == 0);
      return;
  }
  FUZZ_FAIL("a frame of a kind that there is");
}

void check_stop(const std::string& text) {
  const TransportFailure failure = decode_stop(text, kNumRanks);
  FUZZ_EXPECT(failure.origin >= -1 && failure.origin < kNumRanks);
  const std::string said = encode_stop(failure);  // long ones are cut
  FUZZ_EXPECT(said.size() <= kMaxStopBytes);
  FUZZ_EXPECT(encode_stop(decode_stop(said, kNumRanks)) == said);
}

void check_ucx_head(const std::string& text) {
  const UcxHead head = decode_ucx_head(bytes_of(text));
  FUZZ_EXPECT(text.size() == kUcxHeadBytes + head.head.payload_size);
  std::vector<std::byte> said(kUcxHeadBytes);
  encode_ucx_head(head, said.data());
  FUZZ_EXPECT(std::ranges::equal(said, bytes_of(text).first(kUcxHeadBytes)));
}

template <class Check>
void value_or_error(Check check, const std::string& text) {
  try {
    check(text);
  } catch (const WireError& error) {
    FUZZ_EXPECT(error.what()[0] != '\0');
  }
}

}  // namespace
}  // namespace crossdevice::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdevice::detail;
  crossdevice::fuzz::Input input(data, size);
  const std::size_t what = input.below(4);
  const std::size_t num_said = what == 3 ? 1 + input.below(2 * SaidOperations::kPlaces) : 0;
  const std::string text = input.rest();
  if (what == 0) value_or_error([](const auto& it) { check_tcp_head(it, {}); }, text);
  if (what == 1) value_or_error(check_stop, text);
  if (what == 2) value_or_error(check_ucx_head, text);
  SaidOperations said;
  for (std::size_t i = 0; i < num_said; ++i) {
    said.remember(crossdevice::pack_operation({.kind = "all_reduce", .num_values = i}));
  }
  if (what == 3) value_or_error([&](const auto& it) { check_tcp_head(it, said); }, text);
  return 0;
}
