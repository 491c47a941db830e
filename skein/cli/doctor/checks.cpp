// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/doctor/checks.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "skein/control/socket.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/host_memory.h"
#include "skein/launch/placement/detect.h"
#include "skein/launch/placement/interface.h"
#include "skein/launch/process/slow_disk.h"
#include "skein/spill/disk_rate.h"

namespace skein::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr int kUsualPort = 29500;

Finding ok(std::string name, std::string found) {
  return {std::move(name), Health::kOk, std::move(found), ""};
}

Finding warning(std::string name, std::string found, std::string advice) {
  return {std::move(name), Health::kWarning, std::move(found), std::move(advice)};
}

Finding problem(std::string name, std::string found, std::string advice) {
  return {std::move(name), Health::kProblem, std::move(found), std::move(advice)};
}

std::string text_of(const Json& facts, const char* key) {
  return facts.is_object() && facts.contains(key) && facts[key].is_string()
             ? facts[key].get<std::string>()
             : "";
}

Json gpus_of(const Json& facts) {
  Json gpus = Json::array();
  for (const auto& gpu : facts.is_object() ? facts.value("gpus", Json::array()) : Json::array()) {
    if (gpu.is_object()) gpus.push_back(gpu);
  }
  return gpus;
}

bool are_alike(const Json& gpus) {
  return std::all_of(gpus.begin(), gpus.end(), [&](const Json& gpu) {
    return gpu.value("name", "") == gpus[0].value("name", "") &&
           gpu.value("bytes", uint64_t{0}) == gpus[0].value("bytes", uint64_t{0});
  });
}

Finding check_devices(const launch::Hardware& hardware, bool cuda_build, const Json& facts) {
  if (!hardware.gpu_problem.empty()) {
    return problem("GPUs", fmt::format("present but unusable: {}", hardware.gpu_problem),
                   "repair the driver (does `nvidia-smi` answer?), or train with device=cpu");
  }
  if (hardware.gpus == 0) return ok("GPUs", "none visible: training runs on the CPU");
  std::string found = fmt::format("{} visible", hardware.gpus);
  const auto gpus = gpus_of(facts);
  for (const auto& gpu : gpus) {
    found +=
        fmt::format("; {} {} (sm {})", gpu.value("name", "GPU"),
                    shown_bytes(gpu.value("bytes", uint64_t{0})), gpu.value("capability", "?"));
  }
  if (!cuda_build) {
    return warning("GPUs", found, "this build has no CUDA: `make cuda`, or train on the CPU");
  }
  if (are_alike(gpus)) return ok("GPUs", found);
  return warning("GPUs", found + "; they are of different models",
                 "all ranks wait for the slowest and fit into the smallest: choose alike ones with "
                 "CUDA_VISIBLE_DEVICES");
}

Finding check_versions(const launch::Hardware& hardware, bool cuda_build, const Json& facts) {
  if (facts.is_null()) {
    return problem("versions", "skein-worker does not answer",
                   "install skein-worker and its libraries beside skein (`make`)");
  }
  const auto runtime = text_of(facts, "cuda_runtime");
  const auto driver = text_of(facts, "cuda_driver");
  const auto nccl = text_of(facts, "nccl");
  auto found = fmt::format("LibTorch {}", text_of(facts, "libtorch"));
  if (!runtime.empty()) found += fmt::format(", CUDA runtime {}", runtime);
  if (!driver.empty()) found += fmt::format(", driver up to CUDA {}", driver);
  if (!nccl.empty()) found += fmt::format(", NCCL {}", nccl);
  if (!cuda_build) found += " (built without CUDA)";
  if (cuda_build && hardware.gpus > 0 && nccl.empty()) {
    return problem("versions", found, "NCCL is missing: reinstall the build with CUDA");
  }
  const bool too_old = cuda_build && hardware.gpus > 0 && !driver.empty() &&
                       std::atoi(driver.c_str()) < std::atoi(runtime.c_str());
  if (too_old) return problem("versions", found, "the driver is older than CUDA: update it");
  return ok("versions", found);
}

Finding check_peers(const launch::Hardware& hardware, const Json& facts) {
  if (hardware.gpus < 2) return ok("P2P", "fewer than two GPUs");
  const auto apart =
      facts.is_object() ? facts.value("no_peer_access", Json::array()) : Json::array();
  if (apart.empty()) return ok("P2P", "every GPU reaches every other");
  return warning(
      "P2P",
      fmt::format("{} pair(s) of GPUs do not reach each other, first {}", apart.size(),
                  apart[0].dump()),
      "NCCL goes through host memory, which is slower: look at `nvidia-smi topo -p2p r`, "
      "and for ACS or IOMMU in the BIOS");
}

Finding check_shared_memory(const launch::Hardware& hardware) {
  struct statvfs stat{};
  if (::statvfs("/dev/shm", &stat) != 0) {
    return warning("shared memory", "/dev/shm is missing",
                   "NCCL needs it between GPUs: mount it, or docker run --ipc=host");
  }
  const uint64_t size = static_cast<uint64_t>(stat.f_blocks) * stat.f_frsize;
  const uint64_t left = static_cast<uint64_t>(stat.f_bavail) * stat.f_frsize;
  const auto found = fmt::format("/dev/shm has {}, {} free", shown_bytes(size), shown_bytes(left));
  if (left >= 512 * kMiB || hardware.gpus < 2) return ok("shared memory", found);
  return warning("shared memory", found,
                 "NCCL may fail with it: docker run --shm-size=8g (or --ipc=host)");
}

// The launcher's own words are for runs; here only whether it works counts.
Finding check_port() {
  const auto name = fmt::format("port {}", kUsualPort);
  try {
    control::listen_on("0.0.0.0", kUsualPort);
    return ok(name, "free");
  } catch (const std::exception&) {
    return warning(name, "taken by another program",
                   "matters for several machines only: give them --master-port (one machine takes "
                   "a free port by itself)");
  }
}

Finding check_interfaces() {
  std::string found;
  bool beyond_loopback = false;
  for (const auto& interface : launch::list_interfaces()) {
    found += fmt::format("{}{} {}", found.empty() ? "" : ", ", interface.name, interface.address);
    beyond_loopback = beyond_loopback || interface.name != "lo";
  }
  if (found.empty()) {
    return problem("interfaces", "none is up", "ranks need loopback at least: ip link set lo up");
  }
  return ok("interfaces", beyond_loopback ? found : found + " (loopback only: one machine)");
}

std::optional<Finding> check_master(const launch::Environment& environment) {
  const auto master = launch::find_variable(environment, "MASTER_ADDR");
  if (!master) return std::nullopt;
  const auto name = fmt::format("MASTER_ADDR={}", *master);
  try {
    const auto route = launch::route_to(*master);
    return ok(name, fmt::format("reached from {} ({})", route.address, route.name));
  } catch (const UserError& error) {
    return problem(name, error.what(), "correct or unset MASTER_ADDR");
  }
}

// Only asked about: where it is missing, threads do the same.
Finding check_io_uring() {
  alignas(8) std::array<std::byte, 256> parameters{};  // struct io_uring_params has 120 bytes
  const long descriptor = ::syscall(SYS_io_uring_setup, 1U, parameters.data());
  if (descriptor >= 0) {
    ::close(static_cast<int>(descriptor));
    return ok("io_uring", "available");
  }
  return ok("io_uring", fmt::format("not available: {} (threads read and write in its place)",
                                    std::strerror(errno)));
}

std::string shown_limit(rlim_t value, bool bytes) {
  if (value == RLIM_INFINITY) return "unlimited";
  return bytes ? shown_bytes(value) : std::to_string(value);
}

Finding check_memlock() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const auto found = shown_limit(limit.rlim_cur, /*bytes=*/true);
  std::error_code ignored;
  const bool has_rdma = std::filesystem::exists("/sys/class/infiniband", ignored) &&
                        !std::filesystem::is_empty("/sys/class/infiniband", ignored);
  if (!has_rdma || limit.rlim_cur == RLIM_INFINITY) return ok("memlock", found);
  return warning("memlock", found,
                 "InfiniBand registers memory: ulimit -l unlimited (docker: --ulimit memlock=-1)");
}

Finding check_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto found = shown_limit(limit.rlim_cur, /*bytes=*/false);
  if (limit.rlim_cur >= 1024) return ok("open files", found);
  return warning("open files", found, "raise it: ulimit -n 65536");
}

Finding check_disk() {
  std::error_code failed;
  const auto space = std::filesystem::space(".", failed);
  if (failed) return warning("disk", failed.message(), "is the working folder still there?");
  const auto found = fmt::format("{} free in the working folder", shown_bytes(space.available));
  if (::access(".", W_OK) != 0) {
    return warning("disk", found + ", which cannot be written", "give output_dir=FOLDER elsewhere");
  }
  if (space.available < 100 * kMiB) {
    return problem("disk", found, "free some, or give output_dir=FOLDER elsewhere");
  }
  if (space.available >= 5 * kGiB) return ok("disk", found);
  return warning("disk", found, "`skein plan CONFIG.yaml` tells what checkpoints need");
}

Finding check_memory(const Json& facts) {
  const uint64_t total = total_memory();
  const uint64_t usable = std::min(total, memory_limit().value_or(total));
  const auto found =
      usable == total
          ? fmt::format("{}, no cgroup limit below it", shown_bytes(total))
          : fmt::format("{} by the cgroup's limit, of {}", shown_bytes(usable), shown_bytes(total));
  if (usable != total && usable < 2 * kGiB) {
    return warning("memory", found, "ranks beyond it are killed: raise the container's limit");
  }
  uint64_t of_gpus = 0;
  for (const auto& gpu : gpus_of(facts)) of_gpus += gpu.value("bytes", uint64_t{0});
  if (usable >= 2 * of_gpus) return ok("memory", found);
  return warning(
      "memory", fmt::format("{}: less than twice the GPUs' {}", found, shown_bytes(of_gpus)),
      "what is offloaded and checkpoints on their way lie here: `skein plan CONFIG.yaml` "
      "tells whether a run fits");
}

Finding check_cores(const launch::Hardware& hardware, const launch::Environment& environment) {
  auto found = fmt::format("{}, {} NUMA node(s)", hardware.cores, hardware.count_numa_nodes());
  const auto threads = launch::find_variable(environment, "OMP_NUM_THREADS");
  if (threads) found += fmt::format(", OMP_NUM_THREADS={}", *threads);
  if (threads && std::atoi(threads->c_str()) > hardware.cores) {
    return warning("cores", found, "more threads than cores: unset OMP_NUM_THREADS");
  }
  return ok("cores", found);
}

Finding check_clock() {
  const auto now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  const auto found = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", utc);
  if (utc.tm_year + 1900 < 2025) {
    return warning("clock", found, "set it: newest files are found by their time");
  }
  timex state{};
  const bool synchronised = ::adjtimex(&state) != -1 && (state.status & STA_UNSYNC) == 0;
  return ok("clock", found + (synchronised ? ", synchronised" : ""));
}

std::string shown_rate(double bytes_per_second) {
  return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
}

Finding tell_rate(const std::filesystem::path& folder, const spill::QuickLook& look) {
  const auto found = fmt::format("writes {}, reads {} ({} in {}{})", shown_rate(look.rates.write),
                                 shown_rate(look.rates.read), shown_bytes(look.bytes),
                                 folder == "." ? "the working folder" : folder.string(),
                                 look.is_direct ? "" : ", through the page cache");
  constexpr double kSlow = 0.2e9;
  if (std::min(look.rates.write, look.rates.read) >= kSlow) return ok("disk rate", found);
  return warning("disk rate", found,
                 "checkpoints take long there, and offload_optimizer=nvme would make steps long: "
                 "use a local NVMe disk");
}

// One check that throws shall not hide the others.
void add(std::vector<Finding>& findings, const char* name, const std::function<Finding()>& check) {
  try {
    findings.push_back(check());
  } catch (const std::exception& error) {
    findings.push_back(warning(name, error.what(), "this could not be looked at"));
  }
}

}  // namespace

std::vector<Finding> check_gpus(const launch::Hardware& hardware, bool cuda_build,
                                const Json& facts) {
  std::vector<Finding> findings;
  add(findings, "GPUs", [&] { return check_devices(hardware, cuda_build, facts); });
  add(findings, "versions", [&] { return check_versions(hardware, cuda_build, facts); });
  add(findings, "P2P", [&] { return check_peers(hardware, facts); });
  return findings;
}

std::vector<Finding> check_network(const launch::Environment& environment) {
  std::vector<Finding> findings;
  add(findings, "port", check_port);
  add(findings, "interfaces", check_interfaces);
  if (const auto master = check_master(environment)) findings.push_back(*master);
  return findings;
}

std::vector<Finding> check_limits(const launch::Hardware& hardware,
                                  const launch::Environment& environment, const Json& facts) {
  std::vector<Finding> findings;
  add(findings, "shared memory", [&] { return check_shared_memory(hardware); });
  add(findings, "io_uring", check_io_uring);
  add(findings, "memlock", check_memlock);
  add(findings, "open files", check_descriptors);
  add(findings, "disk", check_disk);
  add(findings, "memory", [&] { return check_memory(facts); });
  add(findings, "cores", [&] { return check_cores(hardware, environment); });
  add(findings, "clock", check_clock);
  return findings;
}

Finding check_disk_rate(const std::filesystem::path& folder, Json& measured) {
  constexpr std::chrono::seconds kPatience(10);
  try {
    const auto look = launch::try_for(kPatience, [folder] { return spill::look_at_disk(folder); });
    if (!look) {
      return problem("disk rate", fmt::format("{} does not answer", folder.string()),
                     "is it a network file system whose server is away? `dmesg` may tell");
    }
    if (look->bytes == 0) {
      return warning("disk rate", fmt::format("not measured: {} has no room", folder.string()),
                     "free some, or give --path FOLDER on another disk");
    }
    measured = {{"path", folder.string()},
                {"bytes", look->bytes},
                {"direct", look->is_direct},
                {"io_uring", look->uses_io_uring},
                {"write_bytes_per_second", look->rates.write},
                {"read_bytes_per_second", look->rates.read}};
    return tell_rate(folder, *look);
  } catch (const std::exception& error) {
    return warning("disk rate", error.what(), "give --path FOLDER that can be written");
  }
}

Finding check_launch(const launch::Hardware& hardware, const launch::Environment& environment,
                     bool cuda_build) {
  try {
    launch::Situation situation;
    situation.environment = environment;
    situation.hardware = hardware;
    situation.cuda_build = cuda_build;
    return ok("launch", launch::detect(situation).summary);
  } catch (const UserError& error) {
    return problem("launch", error.what(), "correct these variables before `skein train`");
  }
}

}  // namespace skein::cli
