// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/detect.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"

namespace skein::launch {
namespace {

using config::Device;
using Arguments = std::vector<std::string>;

struct DetectCase {
  const char* name;
  Arguments arguments;
  Environment environment;
  Hardware hardware;
  Device device = Device::kAuto;
  bool cuda_build = true;
  // Expected: the summary, or a part of the refusal when it starts with "!".
  std::string expected;
  size_t warnings = 0;
};

const Hardware kNoGpu{.gpus = 0, .gpu_problem = "", .cores = 8};
const Hardware kTwoGpus{.gpus = 2, .gpu_problem = "", .cores = 8};
const Hardware kBrokenGpu{
    .gpus = 0, .gpu_problem = "cuInit fails with CUDA_ERROR_X (999)", .cores = 8};

const std::vector<DetectCase> kDetectCases = {
    {"default",
     {},
     {},
     kNoGpu,
     Device::kAuto,
     true,
     "1 CPU rank on this machine (no GPU is visible)"},
    {"all GPUs",
     {},
     {},
     kTwoGpus,
     Device::kAuto,
     true,
     "2 GPU ranks on this machine (all visible GPUs)"},
    {"nproc",
     {"--nproc-per-node", "2"},
     {},
     kNoGpu,
     Device::kAuto,
     true,
     "2 CPU ranks on this machine (--nproc-per-node)"},
    {"underscore",
     {"--nproc_per_node=3"},
     {},
     kNoGpu,
     Device::kAuto,
     true,
     "3 CPU ranks on this machine (--nproc-per-node)"},
    {"variable",
     {},
     {{"NPROC_PER_NODE", "2"}},
     kNoGpu,
     Device::kAuto,
     true,
     "2 CPU ranks on this machine (NPROC_PER_NODE)"},
    {"flag wins",
     {"--nproc-per-node", "1"},
     {{"NPROC_PER_NODE", "2"}},
     kNoGpu,
     Device::kAuto,
     true,
     "1 CPU rank on this machine (--nproc-per-node)"},
    {"cpu word",
     {"--nproc-per-node=cpu"},
     {},
     kTwoGpus,
     Device::kAuto,
     true,
     "8 CPU ranks on this machine (--nproc-per-node)"},
    {"gpu word",
     {"--nproc-per-node=gpu"},
     {},
     kTwoGpus,
     Device::kAuto,
     true,
     "2 GPU ranks on this machine (--nproc-per-node)"},
    {"auto word",
     {"--nproc-per-node=auto"},
     {},
     kTwoGpus,
     Device::kCuda,
     true,
     "2 GPU ranks on this machine (--nproc-per-node)"},
    {"num_gpus",
     {"--num_gpus", "1"},
     {},
     kTwoGpus,
     Device::kAuto,
     true,
     "1 GPU rank on this machine (--num-gpus)"},
    {"device cpu",
     {},
     {},
     kTwoGpus,
     Device::kCpu,
     true,
     "1 CPU rank on this machine (device: cpu)"},
    {"too many",
     {"--nproc-per-node", "3"},
     {},
     kTwoGpus,
     Device::kAuto,
     true,
     "!2 GPU(s) are visible"},
    {"gpus on none", {"--num_gpus", "1"}, {}, kNoGpu, Device::kAuto, true, "!no GPU is visible"},
    {"gpu word on none",
     {"--nproc-per-node", "gpu"},
     {},
     kNoGpu,
     Device::kAuto,
     true,
     "!no GPU is visible"},
    {"cuda without", {}, {}, kNoGpu, Device::kCuda, true, "!device: cuda, but no GPU is visible"},
    {"cuda hidden",
     {},
     {{"CUDA_VISIBLE_DEVICES", ""}},
     kNoGpu,
     Device::kCuda,
     true,
     "!CUDA_VISIBLE_DEVICES=''"},
    {"cuda broken", {}, {}, kBrokenGpu, Device::kCuda, true, "!CUDA_ERROR_X"},
    {"auto broken",
     {},
     {},
     kBrokenGpu,
     Device::kAuto,
     true,
     "1 CPU rank on this machine (a GPU is present but unusable: cuInit fails with CUDA_ERROR_X "
     "(999))",
     1},
    {"cpu build",
     {"--nproc-per-node", "4"},
     {},
     kTwoGpus,
     Device::kAuto,
     false,
     "4 CPU ranks on this machine (--nproc-per-node)",
     1},
    {"cpu build cuda", {}, {}, kTwoGpus, Device::kCuda, false, "!this build of skein has no CUDA"},
    {"bad number", {"--nproc-per-node", "two"}, {}, kNoGpu, Device::kAuto, true, "!'two'"},
    {"zero", {"--nproc-per-node", "0"}, {}, kNoGpu, Device::kAuto, true, "!'0'"},
    {"contradiction",
     {"--nproc-per-node", "1", "--num-gpus", "2"},
     {},
     kTwoGpus,
     Device::kAuto,
     true,
     "!contradict"},
    {"one node",
     {},
     {{"WORLD_SIZE", "1"}, {"NODE_RANK", "0"}, {"MASTER_PORT", "29500"}},
     kNoGpu,
     Device::kAuto,
     true,
     "1 CPU rank on this machine (no GPU is visible)"},
    {"two nodes",
     {},
     {{"WORLD_SIZE", "2"}},
     kNoGpu,
     Device::kAuto,
     true,
     "!WORLD_SIZE=2 describes several machines"},
    {"nnodes variable", {}, {{"NNODES", "2"}}, kNoGpu, Device::kAuto, true, "!NNODES=2"},
    {"torchrun",
     {},
     {{"LOCAL_RANK", "0"}, {"WORLD_SIZE", "2"}},
     kNoGpu,
     Device::kAuto,
     true,
     "!LOCAL_RANK=0"},
    {"mpirun",
     {},
     {{"OMPI_COMM_WORLD_SIZE", "4"}},
     kNoGpu,
     Device::kAuto,
     true,
     "!started 4 times by mpirun"},
    {"inside our rank",
     {},
     {{"LOCAL_RANK", "0"}, {"WORLD_SIZE", "2"}, {"SKEIN_STORE_PORT", "9"}},
     kNoGpu,
     Device::kAuto,
     true,
     "1 CPU rank on this machine (no GPU is visible)"},
};

TEST(Detect, Table) {
  for (const auto& c : kDetectCases) {
    SCOPED_TRACE(c.name);
    const auto split = split_launch_flags(c.arguments);
    EXPECT_TRUE(split.rest.empty());
    const Situation situation{.flags = split.flags,
                              .environment = c.environment,
                              .hardware = c.hardware,
                              .device = c.device,
                              .cuda_build = c.cuda_build};
    try {
      const auto plan = detect(situation);
      EXPECT_EQ(plan.summary, c.expected);
      EXPECT_EQ(plan.warnings.size(), c.warnings);
    } catch (const UserError& error) {
      ASSERT_EQ(c.expected[0], '!') << error.what();
      EXPECT_NE(std::string(error.what()).find(c.expected.substr(1)), std::string::npos)
          << error.what();
    }
  }
}

TEST(Detect, SharesTheCoresUnlessTheUserHas) {
  Situation situation{.flags = {.nproc_per_node = "3", .num_gpus = {}}, .hardware = kNoGpu};
  EXPECT_EQ(detect(situation).omp_num_threads, "2");
  situation.flags.nproc_per_node = "20";
  EXPECT_EQ(detect(situation).omp_num_threads, "1");
  situation.environment["OMP_NUM_THREADS"] = "6";
  EXPECT_EQ(detect(situation).omp_num_threads, "6");
}

TEST(LaunchFlags, TheRestKeepsItsOrder) {
  const Arguments arguments = {"run.yaml",
                               "--standalone",
                               "lr=1e-3",
                               "--master_port",
                               "29501",
                               "--seed",
                               "3",
                               "--local_rank=0",
                               "--nnodes",
                               "1",
                               "--max-restarts=0",
                               "--nproc-per-node",
                               "2",
                               "--fresh"};
  const auto split = split_launch_flags(arguments);
  EXPECT_EQ(split.rest, (Arguments{"run.yaml", "lr=1e-3", "--seed", "3", "--fresh"}));
  EXPECT_EQ(split.flags.nproc_per_node, "2");
}

TEST(LaunchFlags, KnownButNotBuiltIsSaid) {
  const std::vector<Arguments> refused = {
      {"--nnodes", "2"},       {"--nnodes=1:4"},    {"--node_rank", "1"}, {"--num_nodes=2"},
      {"--hostfile", "h"},     {"-H", "h"},         {"--log-dir", "d"},   {"--tee=3"},
      {"--max-restarts", "3"}, {"--include", "a:0"}};
  for (const auto& arguments : refused) {
    try {
      split_launch_flags(arguments);
      ADD_FAILURE() << arguments[0];
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("known, not supported by this version yet"),
                std::string::npos);
    }
  }
  EXPECT_THROW(split_launch_flags(Arguments{"--nproc-per-node"}), UserError);
}

}  // namespace
}  // namespace skein::launch
