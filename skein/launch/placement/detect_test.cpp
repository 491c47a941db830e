// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/detect.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

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
  Situation situation{.hardware = kNoGpu};
  situation.flags.nproc_per_node = "3";
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

TEST(Detect, IncludeNarrowsTheGpusOfThisMachine) {
  const Hardware four{.gpus = 4, .gpu_problem = "", .cores = 8};
  const auto flags = [](const Arguments& arguments) { return split_launch_flags(arguments).flags; };
  auto plan = detect({.flags = flags({"--include", "localhost:1,3"}),
                      .environment = {},
                      .hardware = four,
                      .cuda_build = true});
  EXPECT_EQ(plan.visible_devices, "1,3");
  EXPECT_EQ(plan.summary, "2 GPU ranks on this machine (--include)");
  plan = detect({.flags = flags({"--exclude=localhost:0"}),
                 .environment = {{"CUDA_VISIBLE_DEVICES", "7,6,5,4"}},
                 .hardware = four,
                 .cuda_build = true});
  EXPECT_EQ(plan.visible_devices, "6,5,4");
}

TEST(Detect, NodeFlagsDescribeThePlanAgain) {
  const Arguments typed = {"--nnodes=3",     "--node-rank=1",        "--master-addr=a",
                           "--tee=0:3,1:1",  "--max-restarts=2",     "--nproc-per-node=2",
                           "--log-dir=/tmp", "--numa-binding=socket"};
  const auto plan = detect({.flags = split_launch_flags(typed).flags, .hardware = kNoGpu});
  EXPECT_EQ(plan.output.tees, (std::vector<int>{3, 1}));
  const auto again =
      detect({.flags = split_launch_flags(node_flags(plan, 2)).flags, .hardware = kNoGpu});
  EXPECT_EQ(again.node_rank, 2);
  EXPECT_EQ(again.size(), 6);
  EXPECT_EQ(again.master_addr, "a");
  EXPECT_EQ(again.master_port, 29500);
  EXPECT_EQ(again.max_restarts, 2);
  EXPECT_EQ(again.output.tees, plan.output.tees);
  EXPECT_EQ(again.output.log_dir, plan.output.log_dir);
  EXPECT_EQ(again.numa, NumaBinding::kSocket);
}

TEST(LaunchFlags, WordsOfTorchrunAndDeepSpeed) {
  const Arguments typed = {"--rdzv_backend=c10d",
                           "--rdzv-conf",
                           "timeout=9,join_timeout=30",
                           "--rdzv_id=7",
                           "--monitor-interval",
                           "5",
                           "--no_python",
                           "--role=x",
                           "--start-method=spawn",
                           "--signals-to-handle=SIGTERM,SIGINT",
                           "--launcher",
                           "pdsh",
                           "--no_local_rank",
                           "--no_ssh_check",
                           "--num_nodes=-1",
                           "--node_rank=-1",
                           "--num_gpus=-1",
                           "--enable_each_rank_log",
                           "logs",
                           "--bind_cores_to_rank"};
  const auto split = split_launch_flags(typed);
  EXPECT_TRUE(split.rest.empty());
  EXPECT_EQ(split.flags.join_timeout, std::chrono::seconds(30));
  EXPECT_FALSE(split.flags.num_nodes || split.flags.node_rank || split.flags.num_gpus);
  EXPECT_EQ(split.flags.log_dir, "logs");
  EXPECT_EQ(split.flags.redirects, "3");
  EXPECT_EQ(split.flags.numa, NumaBinding::kExclusive);
}

TEST(LaunchFlags, RefusedWithWhatToType) {
  const std::vector<std::pair<Arguments, const char*>> refused = {
      {{"--nnodes=1:4"}, "type --nnodes 4"},
      {{"--nnodes", "two"}, "--nnodes is 'two'"},
      {{"--nproc-per-node"}, "needs a value"},
      {{"-m", "train"}, "one native program"},
      {{"--launcher=slurm"}, "srun"},
      {{"--launcher=openmpi"}, "mpirun -np"},
      {{"--launcher=rsh"}, "pdsh, ssh"},
      {{"--signals-to-handle=SIGFOO"}, "no signal 'SIGFOO'"},
      {{"--numa-binding=rack"}, "core-complex"},
      {{"--master-port=99999"}, "--master-port is '99999'"},
      {{"--elastic_training"}, "elastic"},
      {{"--rdzv-conf=join_timeout=0"}, "join_timeout"},
      {{"--rdzv-endpoint=:9"}, "names no host"},
  };
  for (const auto& [arguments, says] : refused) {
    EXPECT_PRED2(contains, refusal<UserError>([&] { split_launch_flags(arguments); }), says);
  }
}

TEST(LaunchFlags, ShownRanksAndTees) {
  const auto plan = detect({.flags = split_launch_flags(Arguments{"--nproc-per-node=3", "-r", "3",
                                                                  "--local-ranks-filter=0,2"})
                                         .flags,
                            .hardware = kNoGpu});
  EXPECT_EQ(plan.output.redirects, (std::vector<int>{3, 3, 3}));
  EXPECT_EQ(plan.output.tees, (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(plan.output.shown, (std::vector<int>{0, 2}));
}

}  // namespace
}  // namespace skein::launch
