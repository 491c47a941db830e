// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/placement/foreign_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "skein/core/error.h"
#include "skein/launch/placement/number.h"
#include "skein/launch/placement/slurm.h"

namespace skein::launch {
namespace {

constexpr int kMostRanks = 1'000'000;
constexpr int kMostPort = 65535;
constexpr int kUsualPort = 29500;

// A launcher's names for the four numbers.
struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr auto kMpi = std::to_array<Names>({
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
});

std::optional<int> number_of(const Environment& environment, const char* name, int low) {
  const auto text = find_variable(environment, name);
  if (!text) return std::nullopt;
  return need_number(*text, name, low, kMostRanks);
}

// Throws where the numbers exclude each other.
void check(const ForeignRank& rank, const Names& names) {
  const auto refuse_index = [&](const char* name, int value, const char* bound_name, int bound) {
    throw UserError(fmt::format("{}={} and {}={} contradict each other: {} runs from 0 to {}", name,
                                value, bound_name, bound, name, bound - 1));
  };
  if (rank.rank >= rank.size) refuse_index(names.rank, rank.rank, names.size, rank.size);
  if (rank.local_rank >= rank.local_size) {
    refuse_index(names.local_rank, rank.local_rank, names.local_size, rank.local_size);
  }
  if (rank.size % rank.local_size != 0) {
    throw UserError(fmt::format(
        "{}={} is not a multiple of {}={}: start the same number of ranks on every machine",
        names.size, rank.size, names.local_size, rank.local_size));
  }
}

const char* name_worker_launcher(const Environment& environment) {
  const auto has = [&](const char* name) { return environment.contains(name); };
  const auto accelerate = environment.lower_bound("ACCELERATE_");
  if (accelerate != environment.end() && accelerate->first.starts_with("ACCELERATE_")) {
    return "accelerate";
  }
  if (has("TORCHELASTIC_RUN_ID")) return "torchrun";
  if (has("CROSS_RANK") || has("LOCAL_SIZE")) return "deepspeed";
  return "LOCAL_RANK";
}

int need_worker_number(const Environment& environment, const char* name, int low) {
  const auto value = number_of(environment, name, low);
  if (value) return *value;
  throw UserError(fmt::format(
      "LOCAL_RANK={} is set, so a launcher started this process, but {} is not: set RANK, "
      "WORLD_SIZE and LOCAL_WORLD_SIZE too, or unset LOCAL_RANK for a start by skein itself",
      *find_variable(environment, "LOCAL_RANK"), name));
}

// Without LOCAL_WORLD_SIZE: one machine, if the numbers allow it.
int guess_local_size(const Environment& environment, const ForeignRank& rank) {
  if (const auto nproc = number_of(environment, "NPROC_PER_NODE", 1)) return *nproc;
  if (rank.rank == rank.local_rank) return rank.size;
  throw UserError(
      fmt::format("RANK={} and LOCAL_RANK={} differ, so there are several machines, but "
                  "LOCAL_WORLD_SIZE is not set: export it (ranks on this machine)",
                  rank.rank, rank.local_rank));
}

std::optional<FoundRank> find_mpi(const Environment& environment, const Names& names) {
  const auto size = number_of(environment, names.size, 1);
  const auto rank = number_of(environment, names.rank, 0);
  if (!size || !rank || *size == 1) return std::nullopt;
  FoundRank found;
  found.rank.launcher = names.launcher;
  found.rank.rank = *rank;
  found.rank.size = *size;
  const auto local_rank = number_of(environment, names.local_rank, 0);
  const auto local_size = number_of(environment, names.local_size, 1);
  if (local_rank && local_size) {
    found.rank.local_rank = *local_rank;
    found.rank.local_size = *local_size;
    found.variables =
        fmt::format("{} {} {} {}", names.rank, names.size, names.local_rank, names.local_size);
    check(found.rank, names);
    return found;
  }
  if (find_variable(environment, "SLURM_STEP_ID")) return std::nullopt;  // srun tells more
  const auto master = find_variable(environment, "MASTER_ADDR").value_or("127.0.0.1");
  if (master != "127.0.0.1" && master != "localhost") {
    throw UserError(fmt::format(
        "{}={} {}={}: started by {}, which does not say which ranks share this machine: export {} "
        "and {}, or unset MASTER_ADDR={} if there is one machine only",
        names.rank, *rank, names.size, *size, names.launcher, names.local_rank, names.local_size,
        master));
  }
  found.rank.local_rank = *rank;
  found.rank.local_size = *size;
  found.variables = fmt::format("{} {}, taken for one machine", names.rank, names.size);
  check(found.rank, names);
  return found;
}

int srun_local_size(const Environment& environment, const ForeignRank& rank, int node) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const auto text = find_variable(environment, name);
    if (!text) continue;
    const auto counts = expand_counts(*text, name);
    const bool alike = std::all_of(counts.begin(), counts.end(),
                                   [&](int count) { return count == counts.front(); });
    if (!alike) {
      throw UserError(
          fmt::format("{}={}: start the same number of tasks on every machine (--ntasks-per-node)",
                      name, *text));
    }
    return counts.at(std::min(static_cast<size_t>(node), counts.size() - 1));
  }
  const int nodes = number_of(environment, "SLURM_NNODES", 1).value_or(1);
  return number_of(environment, "SLURM_NTASKS_PER_NODE", 1)
      .value_or(std::max(1, rank.size / nodes));
}

std::optional<FoundRank> find_srun(const Environment& environment) {
  const auto rank = number_of(environment, "SLURM_PROCID", 0);
  const bool in_step = find_variable(environment, "SLURM_STEP_ID").has_value();
  const auto step_tasks = number_of(environment, "SLURM_STEP_NUM_TASKS", 1);
  const auto tasks = step_tasks ? step_tasks : number_of(environment, "SLURM_NTASKS", 1);
  if (!rank || !in_step || !tasks || *tasks == 1) return std::nullopt;
  FoundRank found;
  found.rank.launcher = "srun";
  found.rank.rank = *rank;
  found.rank.size = *tasks;
  const int node = number_of(environment, "SLURM_NODEID", 0).value_or(0);
  found.rank.local_rank = number_of(environment, "SLURM_LOCALID", 0).value_or(0);
  found.rank.local_size = srun_local_size(environment, found.rank, node);
  found.rank.attempt = find_variable(environment, "SLURM_RESTART_COUNT").value_or("0");
  const char* size_name = step_tasks ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  found.variables = fmt::format("SLURM_PROCID SLURM_LOCALID {}", size_name);
  found.own_gpu = find_variable(environment, "SLURM_GPUS_PER_TASK") == "1" ||
                  find_variable(environment, "SLURM_GPU_BIND").value_or("").starts_with("single:1");
  check(found.rank, {.launcher = "srun",
                     .rank = "SLURM_PROCID",
                     .size = size_name,
                     .local_rank = "SLURM_LOCALID",
                     .local_size = "SLURM_TASKS_PER_NODE"});
  return found;
}

// A job's tasks must agree on a port without talking: 15000 to 34999, from what only they share.
int derive_port(const FoundRank& found, const Environment& environment, int parent) {
  constexpr int kFirst = 15000;
  constexpr int kCount = 20000;
  if (found.rank.launcher == "srun") {
    const auto id = find_variable(environment, "SLURM_JOB_ID").value_or("0");
    return kFirst + need_number(id, "SLURM_JOB_ID", 0, 2'000'000'000) % kCount;
  }
  std::string job = std::to_string(parent);
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"}) {
    if (const auto value = find_variable(environment, name)) {
      job = *value;
      break;
    }
  }
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const unsigned char c : job) hash = (hash ^ c) * 1099511628211ULL;
  return kFirst + static_cast<int>(hash % kCount);
}

std::optional<std::string> find_address(const FoundRank& found, const LaunchFlags& flags,
                                        const Environment& environment) {
  auto variable = find_variable(environment, "MASTER_ADDR");
  if (found.rank.store_is_served && variable) return variable;
  if (flags.rdzv_endpoint) return flags.rdzv_endpoint->host;
  if (flags.master_addr) return flags.master_addr;
  if (variable) return variable;
  if (found.rank.launcher == "srun") {
    for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
      const auto list = find_variable(environment, name);
      if (list && found.rank.size > found.rank.local_size) return expand_hosts(*list, name).at(0);
    }
  }
  if (found.rank.size == found.rank.local_size) return "127.0.0.1";
  return std::nullopt;
}

int find_port(const FoundRank& found, const LaunchFlags& flags, const Environment& environment,
              int parent) {
  const auto& rank = found.rank;
  const auto variable = find_variable(environment, "MASTER_PORT");
  const auto said = [&] { return need_number(*variable, "MASTER_PORT", 1, kMostPort); };
  if (rank.store_is_served && variable) return said();
  if (flags.rdzv_endpoint && flags.rdzv_endpoint->port) return *flags.rdzv_endpoint->port;
  if (flags.master_port.value_or(0) != 0) return *flags.master_port;
  if (variable) return said();
  if (rank.size == 1) return 0;
  const bool derives = rank.size == rank.local_size || rank.launcher == "srun";
  return derives ? derive_port(found, environment, parent) : kUsualPort;
}

}  // namespace

std::optional<FoundRank> find_worker(const Environment& environment) {
  if (!find_variable(environment, "LOCAL_RANK")) return std::nullopt;
  const bool whole = find_variable(environment, "RANK") && find_variable(environment, "WORLD_SIZE");
  if (!whole && find_task(environment)) return std::nullopt;  // a script set LOCAL_RANK from it
  FoundRank found;
  auto& rank = found.rank;
  rank.launcher = name_worker_launcher(environment);
  rank.local_rank = need_worker_number(environment, "LOCAL_RANK", 0);
  rank.rank = need_worker_number(environment, "RANK", 0);
  rank.size = need_worker_number(environment, "WORLD_SIZE", 1);
  const char* local_name =
      find_variable(environment, "LOCAL_WORLD_SIZE") ? "LOCAL_WORLD_SIZE" : "LOCAL_SIZE";
  const auto local_size = number_of(environment, local_name, 1);
  rank.local_size = local_size ? *local_size : guess_local_size(environment, rank);
  rank.store_is_served = find_variable(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  rank.attempt = find_variable(environment, "TORCHELASTIC_RESTART_COUNT")
                     .value_or(find_variable(environment, "SLURM_RESTART_COUNT").value_or("0"));
  found.variables = fmt::format("LOCAL_RANK RANK WORLD_SIZE{}{}", local_size ? " " : "",
                                local_size ? local_name : "");
  check(rank, {.launcher = "",
               .rank = "RANK",
               .size = "WORLD_SIZE",
               .local_rank = "LOCAL_RANK",
               .local_size = local_name});
  return found;
}

std::optional<FoundRank> find_task(const Environment& environment) {
  for (const auto& names : kMpi) {
    if (auto found = find_mpi(environment, names)) return found;
  }
  return find_srun(environment);
}

void fill_address(FoundRank& found, const LaunchFlags& flags, const Environment& environment,
                  int parent) {
  auto& rank = found.rank;
  const auto address = find_address(found, flags, environment);
  if (!address) {
    throw UserError(
        fmt::format("{} started {} ranks on {} machines, but MASTER_ADDR is not set: export "
                    "MASTER_ADDR=<the machine of rank 0> for all ranks",
                    rank.launcher, rank.size, rank.size / rank.local_size));
  }
  rank.master_addr = *address;
  rank.master_port = find_port(found, flags, environment, parent);
}

}  // namespace skein::launch
