// SPDX-License-Identifier: Apache-2.0
/// Whether a call fails as it should, for works whose result is an exit status.
#pragma once

#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "crossdevice/core/error.h"

namespace crossdevice::testing {

/// 0 if `call` throws an Error with this text that blames these ranks.
template <class Error, class Call>
int check_error(const std::string& text, const std::vector<int>& culprits, Call call) {
  try {
    call();
    std::cerr << "no error\n";
  } catch (const Error& error) {
    std::vector<int> blamed;
    for (const RankInfo& rank : error.culprits()) blamed.push_back(rank.rank);
    if (blamed == culprits && std::string(error.what()).find(text) != std::string::npos) return 0;
    std::cerr << "unexpected: " << error.what() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "another kind of error: " << error.what() << '\n';
  }
  return 1;
}

}  // namespace crossdevice::testing
