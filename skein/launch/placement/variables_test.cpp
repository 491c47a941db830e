// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/variables.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/testing.h"
#include "skein/launch/placement/interface.h"
#include "skein/launch/placement/slurm.h"

namespace skein::launch {
namespace {

TEST(Slurm, ExpandsItsLists) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(expand_hosts("node[01-03,7],x", "L"),
            (Names{"node01", "node02", "node03", "node7", "x"}));
  EXPECT_EQ(expand_hosts("r[1-2]n[8,09]-ib", "L"),
            (Names{"r1n8-ib", "r1n09-ib", "r2n8-ib", "r2n09-ib"}));
  EXPECT_EQ(expand_hosts("one", "L"), (Names{"one"}));
  EXPECT_EQ(expand_counts("4(x2),3", "L"), (std::vector<int>{4, 4, 3}));
  for (const char* bad : {"a[1-", "a[3-1]", "a[x]", "", "a,,b", "a[0-99999999]", "a[]"}) {
    EXPECT_THROW(expand_hosts(bad, "L"), UserError) << bad;
  }
  for (const char* bad : {"", "x", "2(x0)", "2(x", "1,,2", "-1"}) {
    EXPECT_THROW(expand_counts(bad, "L"), UserError) << bad;
  }
}

TEST(Variables, NeverForwardSecretsOrOurOwn) {
  const Environment environment = {{"NCCL_DEBUG", "INFO"},
                                   {"WANDB_API_KEY", "abc"},
                                   {"HF_TOKEN", "abc"},
                                   {"HF_HOME", "/h"},
                                   {"SKEIN_STORE_PORT", "1"},
                                   {"SKEIN_BOARD_FD", "4"},
                                   {"CUDA_VISIBLE_DEVICES", "1"},
                                   {"PATH", "/bin"},
                                   {"WANDB_BASE_URL", "http://u:p@h"}};
  std::vector<std::string> names;
  for (const auto& [name, value] : forwarded(environment)) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"HF_HOME", "NCCL_DEBUG", "WANDB_BASE_URL"}));
  EXPECT_EQ(describe(environment),
            "CUDA_VISIBLE_DEVICES=1 HF_HOME=/h NCCL_DEBUG=INFO WANDB_BASE_URL=(hidden)");
  EXPECT_EQ(describe({{"PATH", "/bin"}}), "");
}

TEST(Variables, DeepSpeedEnvAddsToThem) {
  const auto home = std::filesystem::temp_directory_path() / fmt::format("skein-env-{}", getpid());
  std::filesystem::create_directories(home);
  write_file_atomically(home / ".deepspeed_env", "# mine\nMY_FLAG=a=b\nMY_TOKEN=x\n\n");
  const auto found = forwarded({{"HOME", home.string()}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0], std::pair(std::string("MY_FLAG"), std::string("a=b")));
  write_file_atomically(home / ".deepspeed_env", "OK=1\nnot a line\n");
  EXPECT_PRED2(contains, refusal<UserError>([&] { forwarded({{"HOME", home.string()}}); }),
               ".deepspeed_env:2:");
  std::filesystem::remove_all(home);
}

TEST(Variables, LogLevel) {
  EXPECT_EQ(asked_log_level({}), std::nullopt);
  EXPECT_EQ(asked_log_level({{"TORCH_DISTRIBUTED_DEBUG", "OFF"}}), std::nullopt);
  EXPECT_EQ(asked_log_level({{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}}), LogLevel::kDebug);
  EXPECT_EQ(asked_log_level({{"DEEPSPEED_LOG_LEVEL", "warning"}}), LogLevel::kWarning);
  EXPECT_EQ(
      asked_log_level({{"DEEPSPEED_LOG_LEVEL", "ERROR"}, {"TORCH_DISTRIBUTED_DEBUG", "INFO"}}),
      LogLevel::kInfo);
  EXPECT_THROW(asked_log_level({{"DEEPSPEED_LOG_LEVEL", "loud"}}), UserError);
}

TEST(Interface, LoopbackAndUnknown) {
  EXPECT_EQ(route_to("127.0.0.1").name, "lo");
  EXPECT_EQ(route_to("127.0.0.1").address, "127.0.0.1");
  EXPECT_TRUE(is_local("localhost"));
  EXPECT_TRUE(is_local("127.0.0.1"));
  EXPECT_FALSE(is_local("203.0.113.77"));
}

}  // namespace
}  // namespace skein::launch
