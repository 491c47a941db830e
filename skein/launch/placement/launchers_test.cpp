// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/launch/placement/detect.h"

namespace skein::launch {
namespace {

const Hardware kPlainMachine{.gpus = 0, .gpu_problem = "", .cores = 8};

// How a start is recognised, on a machine without GPUs. Expected: a part of the summary, or of the
// refusal when it starts with "!".
struct LaunchCase {
  const char* name;
  std::vector<std::string> arguments;
  Environment environment;
  std::string expected;
  Hardware hardware = kPlainMachine;
};

const Environment kTorchrun = {{"LOCAL_RANK", "1"},
                               {"RANK", "3"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "10.0.0.1"},
                               {"MASTER_PORT", "29400"},
                               {"TORCHELASTIC_RUN_ID", "none"},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                               {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Environment kSrun = {{"SLURM_PROCID", "3"},
                           {"SLURM_LOCALID", "1"},
                           {"SLURM_NODEID", "1"},
                           {"SLURM_NTASKS", "4"},
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_JOB_ID", "40123"},
                           {"SLURM_TASKS_PER_NODE", "2(x2)"},
                           {"SLURM_JOB_NODELIST", "gpu[07-08]"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "prterun-a-1@1"}};
const Environment kNodes = {{"MASTER_ADDR", "10.0.0.1"},
                            {"MASTER_PORT", "29501"},
                            {"NODE_RANK", "1"},
                            {"WORLD_SIZE", "2"},
                            {"NPROC_PER_NODE", "4"}};

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

Environment without(Environment environment, const std::vector<std::string>& names) {
  for (const auto& name : names) environment.erase(name);
  return environment;
}

void run_launch_cases(const std::vector<LaunchCase>& cases) {
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const bool refused = c.expected.starts_with('!');
    const auto expected = c.expected.substr(refused ? 1 : 0);
    try {
      const auto plan = detect({.flags = split_launch_flags(c.arguments).flags,
                                .environment = c.environment,
                                .hardware = c.hardware,
                                .cuda_build = true,
                                .parent = 77});
      EXPECT_FALSE(refused) << plan.summary;
      EXPECT_NE(plan.summary.find(expected), std::string::npos) << plan.summary;
    } catch (const UserError& error) {
      EXPECT_TRUE(refused) << error.what();
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
}

TEST(Detect, WorkersOfOtherLaunchers) {
  run_launch_cases({
      {"torchrun",
       {},
       kTorchrun,
       "CPU rank 3 of 4, started by torchrun (LOCAL_RANK RANK WORLD_SIZE "
       "LOCAL_WORLD_SIZE), store at 10.0.0.1:29400 (its agent's)"},
      {"accelerate",
       {},
       with(kTorchrun, {{"ACCELERATE_MIXED_PRECISION", "no"}}),
       "started by accelerate"},
      {"deepspeed",
       {"--local_rank=0"},
       {{"LOCAL_RANK", "0"},
        {"RANK", "0"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_SIZE", "2"},
        {"CROSS_RANK", "0"},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", "29500"}},
       "CPU rank 0 of 2, started by deepspeed (LOCAL_RANK RANK WORLD_SIZE LOCAL_SIZE)"},
      {"by hand",
       {},
       {{"LOCAL_RANK", "1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}},
       "CPU rank 1 of 2, started by LOCAL_RANK"},
      {"alone",
       {},
       {{"LOCAL_RANK", "0"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}},
       "CPU rank 0 of 1, started by LOCAL_RANK (LOCAL_RANK RANK WORLD_SIZE), store at 127.0.0.1:0"},
      {"Open MPI", {}, kOpenMpi, "CPU rank 1 of 2, started by Open MPI"},
      {"MVAPICH2",
       {},
       {{"MV2_COMM_WORLD_RANK", "0"},
        {"MV2_COMM_WORLD_SIZE", "2"},
        {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
        {"MV2_COMM_WORLD_LOCAL_SIZE", "2"},
        {"PMI_RANK", "0"},
        {"PMI_SIZE", "2"}},
       "started by MVAPICH2"},
      {"MPICH",
       {},
       {{"PMI_RANK", "3"},
        {"PMI_SIZE", "4"},
        {"MPI_LOCALRANKID", "1"},
        {"MPI_LOCALNRANKS", "2"},
        {"MASTER_ADDR", "a"}},
       "CPU rank 3 of 4, started by MPICH (PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS), "
       "store at a:29500"},
      {"Hydra, one host", {}, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "taken for one machine"},
      {"srun",
       {},
       kSrun,
       "CPU rank 3 of 4, started by srun (SLURM_PROCID SLURM_LOCALID SLURM_NTASKS), store at "
       "gpu07:15123"},
      {"srun with PMI-2",
       {},
       with(kSrun, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}),
       "started by srun"},
      {"torchrun inside srun", {}, with(kSrun, kTorchrun), "started by torchrun"},
      {"mpirun inside sbatch", {}, with(kOpenMpi, kSrun), "started by Open MPI"},
      {"LOCAL_RANK from a script",
       {},
       with(kOpenMpi, {{"LOCAL_RANK", "1"}}),
       "started by Open MPI"},
      {"same numbers as flags", {"--nproc-per-node", "2", "--nnodes=2"}, kTorchrun, "rank 3 of 4"},
      {"torchrun's own PET",
       {},
       with(kTorchrun, {{"PET_NNODES", "9"}, {"PET_MAX_RESTARTS", "3"}}),
       "rank 3 of 4"},
  });
}

TEST(Detect, WorkersThatAreRefused) {
  run_launch_cases({
      {"Hydra, several hosts",
       {},
       {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}},
       "!export MPI_LOCALRANKID"},
      {"MPI without address",
       {},
       with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}}),
       "!export MASTER_ADDR="},
      {"no RANK", {}, without(kTorchrun, {"RANK"}), "!but RANK is not"},
      {"no WORLD_SIZE", {}, without(kTorchrun, {"WORLD_SIZE"}), "!but WORLD_SIZE is not"},
      {"no LOCAL_WORLD_SIZE",
       {},
       without(kTorchrun, {"LOCAL_WORLD_SIZE"}),
       "!LOCAL_WORLD_SIZE is not set"},
      {"no number", {}, with(kTorchrun, {{"RANK", "x"}}), "!RANK is 'x'"},
      {"rank too high",
       {},
       with(kTorchrun, {{"RANK", "4"}}),
       "!RANK=4 and WORLD_SIZE=4 contradict each other"},
      {"local rank too high",
       {},
       with(kTorchrun, {{"LOCAL_RANK", "2"}}),
       "!LOCAL_RANK=2 and LOCAL_WORLD_SIZE=2 contradict each other"},
      {"not a multiple",
       {},
       with(kTorchrun, {{"WORLD_SIZE", "5"}}),
       "!WORLD_SIZE=5 is not a multiple of LOCAL_WORLD_SIZE=2"},
      {"uneven tasks",
       {},
       with(kSrun, {{"SLURM_TASKS_PER_NODE", "3,1"}}),
       "!SLURM_TASKS_PER_NODE=3,1"},
      {"other ranks",
       {"--nproc-per-node", "4"},
       kTorchrun,
       "!--nproc-per-node 4 and 2 ranks on this machine (LOCAL_RANK RANK"},
      {"other nodes", {"--nnodes", "3"}, kTorchrun, "!--nnodes 3 and 2 node(s)"},
      {"hostfile", {"--hostfile", "h"}, kTorchrun, "!--hostfile and LOCAL_RANK"},
      {"restarts",
       {"--max-restarts", "3"},
       kTorchrun,
       "!restarts belong to torchrun: give it --max-restarts"},
      {"too few GPUs",
       {},
       kTorchrun,
       "!2 ranks, one GPU each, but 1 GPU(s)",
       {.gpus = 1, .gpu_problem = "", .cores = 8}},
  });
}

TEST(Detect, SeveralMachines) {
  run_launch_cases({
      {"variables",
       {},
       kNodes,
       "4 CPU ranks on this machine (NPROC_PER_NODE), node 1 of 2 (WORLD_SIZE=2; NODE_RANK=1), "
       "node 0 is 10.0.0.1:29501"},
      {"NNODES",
       {},
       with(without(kNodes, {"WORLD_SIZE"}), {{"NNODES", "3"}}),
       "node 1 of 3 (NNODES=3"},
      {"RANK",
       {},
       with(without(kNodes, {"NODE_RANK"}), {{"RANK", "0"}}),
       "node 0 of 2 (WORLD_SIZE=2; RANK=0)"},
      {"WORLD_SIZE of ranks",
       {},
       with(kNodes, {{"NNODES", "2"}, {"WORLD_SIZE", "8"}}),
       "node 1 of 2 (NNODES=2"},
      {"flags",
       {"--nnodes=2", "--node_rank", "1", "--master-addr", "a", "--nproc-per-node", "2"},
       {},
       "node 1 of 2 (--nnodes 2; --node-rank 1), node 0 is a:29500"},
      {"deepspeed's flags",
       {"--num_nodes=2", "--node_rank=0", "--master_addr=a"},
       {},
       "node 0 of 2 (--num-nodes 2"},
      {"range of one",
       {"--nnodes=2:2", "--node-rank=0", "--rdzv-endpoint=[fe80::1]:4000"},
       {},
       "node 0 is fe80::1:4000"},
      {"PET",
       {},
       {{"PET_NNODES", "2"},
        {"PET_NODE_RANK", "1"},
        {"PET_MASTER_ADDR", "m"},
        {"PET_NPROC_PER_NODE", "3"}},
       "3 CPU ranks on this machine (--nproc-per-node), node 1 of 2"},
      {"flags over srun",
       {"--nnodes=2", "--node-rank=1", "--master-addr=a"},
       kSrun,
       "node 1 of 2 (--nnodes 2"},
      {"srun, one task per machine",
       {"--nproc-per-node=4"},
       with(kSrun, {{"SLURM_NTASKS", "2"},
                    {"SLURM_PROCID", "1"},
                    {"SLURM_LOCALID", "0"},
                    {"SLURM_TASKS_PER_NODE", "1(x2)"}}),
       "4 CPU ranks on this machine (--nproc-per-node), node 1 of 2 (one task of srun on each"},
      {"allocation without srun",
       {},
       {{"SLURM_JOB_ID", "5"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}},
       "1 CPU rank on this machine"},
      {"shell of srun",
       {},
       {{"SLURM_STEP_ID", "0"},
        {"SLURM_NTASKS", "1"},
        {"SLURM_PROCID", "0"},
        {"PMI_RANK", "0"},
        {"PMI_SIZE", "1"}},
       "1 CPU rank on this machine"},
      {"standalone",
       {"--standalone", "--master_port=29501", "--nproc-per-node=2"},
       {},
       "2 CPU ranks on this machine"},
      {"one machine",
       {"--nnodes", "1", "--node-rank", "0", "--rdzv-endpoint=localhost:0"},
       {},
       "1 CPU rank on this machine"},
  });
}

TEST(Detect, MachinesThatAreRefused) {
  run_launch_cases({
      {"flag against variable",
       {"--nnodes", "2"},
       with(kNodes, {{"NNODES", "3"}}),
       "!--nnodes 2 and NNODES=3 contradict each other"},
      {"two flags", {"--nnodes=2", "--num-nodes=3"}, {}, "!--nnodes 2 and --num-nodes 3"},
      {"NNODES against WORLD_SIZE",
       {},
       with(kNodes, {{"NNODES", "3"}}),
       "!NNODES=3 and WORLD_SIZE=2 contradict each other"},
      {"rank against rank", {"--node-rank=0"}, kNodes, "!--node-rank 0 and NODE_RANK=1"},
      {"NODE_RANK against RANK", {}, with(kNodes, {{"RANK", "0"}}), "!NODE_RANK=1 and RANK=0"},
      {"rank too high",
       {},
       with(kNodes, {{"NODE_RANK", "2"}}),
       "!NODE_RANK=2 and WORLD_SIZE=2 contradict each other"},
      {"rank alone", {"--node-rank", "1"}, {}, "!nothing says how many nodes"},
      {"RANK alone", {}, {{"RANK", "0"}}, "!RANK=0 is set, but WORLD_SIZE is not"},
      {"no address",
       {"--nnodes=2", "--node-rank=0"},
       {},
       "!type: skein train ... --nnodes 2 --node-rank <0 to 1> --master-addr"},
      {"no rank", {"--nnodes=2", "--master-addr=a"}, {}, "!which of the nodes is this?"},
      {"standalone", {"--standalone"}, kNodes, "!--standalone means one machine, but WORLD_SIZE=2"},
      {"two addresses",
       {"--nnodes=2", "--node-rank=0", "--master-addr=a", "--rdzv-endpoint=b"},
       {},
       "!--master-addr a and --rdzv-endpoint b"},
      {"bad port", {}, with(kNodes, {{"MASTER_PORT", "70000"}}), "!MASTER_PORT is '70000'"},
      {"bad count", {}, with(kNodes, {{"WORLD_SIZE", "many"}}), "!WORLD_SIZE is 'many'"},
      {"MPI's share and ranks of its own",
       {"--nproc-per-node=4"},
       kOpenMpi,
       "!--nproc-per-node 4 and 2 ranks on this machine"},
      {"streams", {"--tee=4"}, {}, "!--tee 4: expected 0 (none)"},
      {"filter", {"--local-ranks-filter=1"}, {}, "!--local-ranks-filter is '1'"},
  });
}

TEST(Detect, FillsTheForeignRank) {
  auto foreign = *detect({.environment = kTorchrun, .hardware = kPlainMachine}).foreign;
  EXPECT_TRUE(foreign.store_is_served);
  EXPECT_EQ(foreign.attempt, "2");
  EXPECT_EQ(foreign.local_rank, 1);
  EXPECT_EQ(foreign.local_size, 2);
  const auto served = without(kTorchrun, {"TORCHELASTIC_USE_AGENT_STORE"});
  EXPECT_FALSE(detect({.environment = served, .hardware = kPlainMachine}).foreign->store_is_served);

  const auto plan = detect({.environment = kSrun, .hardware = kPlainMachine});
  EXPECT_EQ(plan.nodes, 2);
  EXPECT_EQ(plan.node_rank, 1);
  EXPECT_EQ(plan.local_ranks, 2);
  EXPECT_EQ(plan.size(), 4);
  const auto own = with(kSrun, {{"SLURM_GPUS_PER_TASK", "1"}});
  const Hardware one_gpu{.gpus = 1, .gpu_problem = "", .cores = 8};
  foreign = *detect({.environment = own, .hardware = one_gpu, .cuda_build = true}).foreign;
  EXPECT_EQ(foreign.gpu, 0);
  EXPECT_EQ(foreign.local_rank, 1);
}

// All ranks of a job must derive the same port, and jobs rather different ones.
TEST(Detect, RanksOfOneMachineDeriveTheirPort) {
  const auto port = [](const Environment& environment, int parent) {
    return detect({.environment = environment, .hardware = kPlainMachine, .parent = parent})
        .foreign->master_port;
  };
  auto other = with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  EXPECT_EQ(port(kOpenMpi, 1), port(other, 2));
  other["PMIX_NAMESPACE"] = "prterun-a-2@1";
  EXPECT_NE(port(kOpenMpi, 1), port(other, 1));
  const Environment hydra = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  EXPECT_EQ(port(hydra, 10), port(hydra, 10));
  EXPECT_NE(port(hydra, 10), port(hydra, 11));
  EXPECT_GE(port(hydra, 10), 15000);
  EXPECT_LT(port(hydra, 10), 35000);
}

}  // namespace
}  // namespace skein::launch
