// SPDX-License-Identifier: Apache-2.0
/// An address as people write it.
#pragma once

#include <asio/ip/address.hpp>

namespace crossdevice::detail {

/// IPv4 as such, also where a socket of both families has it as an address of IPv6.
[[nodiscard]] inline asio::ip::address plain_address(const asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
}

}  // namespace crossdevice::detail
