// SPDX-License-Identifier: Apache-2.0
#include "run/remote_shell.h"

#include <sstream>

#include <fmt/format.h>

namespace crossdevice::run {

std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += R"('\'')";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::vector<std::string> remote_command(const std::string& shell, const std::string& host,
                                        const std::string& program, const std::string& agent) {
  std::vector<std::string> words;
  std::istringstream stream(shell);
  // NOLINTNEXTLINE(performance-inefficient-vector-operation): their number is not known before
  for (std::string word; stream >> word;) words.push_back(word);
  words.push_back(host);
  words.push_back(
      fmt::format("test -x {0} && exec {0} {1}; exec crossdevice-run {1}", quoted(program), agent));
  return words;
}

}  // namespace crossdevice::run
