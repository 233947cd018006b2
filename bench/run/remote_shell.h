// SPDX-License-Identifier: Apache-2.0
/// How a program is started on another host.
#pragma once

#include <string>
#include <vector>

namespace crossdevice::run {

/// ssh asks nobody anything: no terminal belongs to it here. It notices within a minute that the other side is gone.
inline constexpr const char* kDefaultRemoteShell =
    "ssh -x -o BatchMode=yes -o ServerAliveInterval=15";

/// The text as one word of a POSIX shell, whatever it holds.
[[nodiscard]] std::string quoted(const std::string& text);

/// The command that runs crossdevice-run `agent` on `host`: the words of `shell` (separated by blanks), the host, and one word for the shell there.
/// It looks for crossdevice-run at `program`, this host's own path, and then in the PATH there.
[[nodiscard]] std::vector<std::string> remote_command(const std::string& shell,
                                                      const std::string& host,
                                                      const std::string& program,
                                                      const std::string& agent);

}  // namespace crossdevice::run
