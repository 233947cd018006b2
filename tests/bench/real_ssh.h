// SPDX-License-Identifier: Apache-2.0
/// OpenSSH's client and server, as the remote shell to hosts that are all this machine.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <shadow.h>
#include <unistd.h>

#include "run/remote_shell.h"

namespace crossdevice::run {

/// Keys, and what the programs read, in a folder of their own. There is no daemon and no port: each client starts a server, and a pipe is the network between
/// them, so that what is left behind is found among a test's processes. All else is as between two machines: the host is known by its key and the user let in
/// by theirs, the server has an environment of its own, and the login shell runs the command. A user who is refused: "stranger@HOST".
class RealSsh {
 public:
  /// `enter` is put in front of each server: "nsenter ...", with $host and $folder.
  explicit RealSsh(const std::string& enter = "") {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    make_key("host_key");
    make_key("user_key");
    write("known_hosts", "* " + read("host_key.pub"));
    write("server", fmt::format("HostKey {0}/host_key\n"
                                "AuthorizedKeysFile {0}/user_key.pub\n"
                                "StrictModes no\n"
                                "UsePAM no\n"
                                "UseDNS no\n"
                                "PasswordAuthentication no\n"
                                "KbdInteractiveAuthentication no\n"
                                "PermitUserRC no\n"
                                "PidFile none\n",
                                folder_));
    // The folder that a server of root's wants is made by Debian's service alone; this one is seen by the server alone.
    const std::string run_folder =
        ::geteuid() == 0 ? "unshare -m sh -c 'mount -t tmpfs tmpfs /run && mkdir /run/sshd && "
                           "exec \"$@\"' server"
                         : "";
    // With this home the login shell does nothing that the user has told it to do.
    write("start", fmt::format("#!/bin/sh\n"
                               "host=$1\n"
                               "folder={}\n"
                               "exec {} {} {} -i -f $folder/server -E $folder/log "
                               "-o \"SetEnv=CROSSDEVICE_HOST_ID=$host HOME=$folder\"\n",
                               folder_, enter, run_folder, kServer));
    std::filesystem::permissions(folder_ + "/start", std::filesystem::perms::owner_all);
    write("client", fmt::format("ProxyCommand {0}/start %h\n"
                                "IdentityFile {0}/user_key\n"
                                "IdentitiesOnly yes\n"
                                "UserKnownHostsFile {0}/known_hosts\n"
                                "GlobalKnownHostsFile /dev/null\n"
                                "StrictHostKeyChecking yes\n"
                                "UpdateHostKeys no\n",
                                folder_));
  }
  ~RealSsh() {
    if (::testing::Test::HasFailure()) ADD_FAILURE() << "the servers said:\n" << read("log");
    std::filesystem::remove_all(folder_);
  }
  RealSsh(const RealSsh&) = delete;
  RealSsh& operator=(const RealSsh&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// What crossdevice-run takes by default, and where the client's settings are.
  [[nodiscard]] std::string shell() const {
    return fmt::format("{} -F {}/client", kDefaultRemoteShell, folder_);
  }
  /// From now on the client knows another key than the hosts have.
  void forget_the_host() const { write("known_hosts", "* " + read("user_key.pub")); }

  /// Why it cannot be had here; empty where it can.
  static std::string obstacle() {
    for (const char* const program : {"/usr/bin/ssh", "/usr/bin/ssh-keygen", kServer}) {
      if (::access(program, X_OK) != 0) return fmt::format("there is no {}", program);
    }
    const passwd* const user = ::getpwuid(::geteuid());  // NOLINT(concurrency-mt-unsafe)
    if (user == nullptr) return "this user has no name";
    const std::string login_shell = user->pw_shell;
    if (login_shell.ends_with("nologin") || login_shell.ends_with("false")) {
      return "this user may not log in";
    }
    if (::access(user->pw_dir, X_OK) != 0) return "this user has no home";
    if (::geteuid() != 0) return "";
    // NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
    if (std::system("unshare -m mount -t tmpfs tmpfs /run >/dev/null 2>&1") != 0) {
      return "no folder can be mounted for a server of root's";
    }
    // NOLINTBEGIN(concurrency-mt-unsafe)
    if (::getpwnam("sshd") == nullptr) return "there is no user sshd";
    const spwd* const root = ::getspnam("root");
    // NOLINTEND(concurrency-mt-unsafe)
    if (root != nullptr && root->sp_pwdp[0] == '!') return "root is locked out";
    return "";
  }

 private:
  static constexpr const char* kServer = "/usr/sbin/sshd";

  void make_key(const std::string& name) const {
    const std::string command =
        fmt::format("ssh-keygen -q -t ed25519 -N '' -f '{}/{}'", folder_, name);
    EXPECT_EQ(std::system(command.c_str()), 0);  // NOLINT(concurrency-mt-unsafe): no thread yet
  }
  void write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(std::ofstream(folder_ + "/" + name) << text);
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_ = ::testing::TempDir() + "real_ssh_XXXXXX";
};

}  // namespace crossdevice::run
