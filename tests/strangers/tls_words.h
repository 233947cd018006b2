// SPDX-License-Identifier: Apache-2.0
/// How somebody begins TLS: hellos of clients, to be said as they are, once or often.
#pragma once

#include <string>
#include <string_view>

namespace crossdevice::strangers {

/// Of who holds the key that is made of a secret: what a member says to a member. Whoever records one can say it again.
[[nodiscard]] std::string tls_hello_of(std::string_view secret);

/// Of any other program: TLS 1.3 or 1.2, as the other side wants, and no key.
[[nodiscard]] std::string tls_hello_without_key();

}  // namespace crossdevice::strangers
