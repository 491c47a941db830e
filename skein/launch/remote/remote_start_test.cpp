// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/remote/remote_start.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::launch {
namespace {

TEST(RemoteStart, AnOrderComesBackAsItWas) {
  const NodeStart order{.arguments = {"c.yaml", "run_name=it's \"$(x)\"\n"},
                        .directory = "/a b",
                        .variables = {{"NCCL_DEBUG", "INFO; rm"}},
                        .secret = control::make_secret()};
  const auto text = encode(order);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto back = decode_start(text);
  EXPECT_EQ(back.arguments, order.arguments);
  EXPECT_EQ(back.directory, order.directory);
  EXPECT_EQ(back.variables, order.variables);
  EXPECT_EQ(back.secret, order.secret);
}

TEST(RemoteStart, WhatIsNoOrderIsRefused) {
  const auto hex = std::string(64, 'a');
  const auto order = [](const std::string& secret, const std::string& variables) {
    return R"({"arguments":[],"directory":"/","variables":)" + variables + R"(,"secret":")" +
           secret + "\"}";
  };
  EXPECT_NO_THROW(decode_start(order(hex, "{}")));
  for (const auto& text :
       {std::string(), std::string("[]"), std::string("{}"), order("00", "{}"), order(hex, "[1]"),
        order(hex + "aa", "{}"), order(std::string(64, 'g'), "{}"), order(hex, R"({"A=B":"c"})"),
        order(hex, R"({"":"c"})"), order(hex, R"({"A":1})")}) {
    EXPECT_THROW(decode_start(text), UserError) << text;
  }
}

// ssh's own program need not be installed for the test.
class SshCommand : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = make_temporary_folder("ssh");
    std::filesystem::copy_file("/bin/true", folder_ / "ssh");
    setenv("PATH", (folder_.string() + ":" + before_).c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", before_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path folder_;
  const std::string before_ = std::getenv("PATH");
};

TEST_F(SshCommand, NamesTheHostAfterAllOptions) {
  const auto words = ssh_command("user@gpu-1.lan", 2222, "/opt/skein-1.0/bin/skein");
  const std::vector<std::string> expected = {
      folder_ / "ssh", "-o", "BatchMode=yes",  "-p",
      "2222",          "--", "user@gpu-1.lan", "/opt/skein-1.0/bin/skein",
      "remote-node"};
  EXPECT_EQ(words, expected);
}

TEST_F(SshCommand, RefusesWhatAShellOrSshWouldActOn) {
  for (const auto* host : {"", "-oProxyCommand=touch x", "a;b", "a b", "$(x)", "a\nb"}) {
    EXPECT_THROW(ssh_command(host, 0, "/opt/skein"), UserError) << host;
  }
  for (const auto* program : {"skein", "/opt/my skein", "/opt/$x/skein", "/opt/a;b", "/opt/'a'"}) {
    EXPECT_THROW(ssh_command("host", 0, program), UserError) << program;
  }
}

}  // namespace
}  // namespace skein::launch
