// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <random>
#include <vector>

#include "skein/cli/doctor/checks.h"
#include "skein/cli/flag_set.h"
#include "skein/cli/worker_program.h"
#include "skein/config/handover.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/json.h"
#include "skein/launch/placement/variables.h"
#include "skein/launch/process/child.h"
#include "skein/launch/ranks/launcher.h"

namespace skein::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "skein doctor [--path DIR] [--json]\n"
    "\n"
    "Looks at GPUs, versions, network and limits, writes and reads the disk of DIR (the working "
    "folder)\n"
    "for a second, and lets two ranks sum 64 MiB. Every line is ok, warning or problem, with what "
    "to "
    "do.\n"
    "Exit code 0, or 2 when there is a problem.\n"
    "More: docs/doctor.md\n";

constexpr std::chrono::seconds kFactsLimit(60);

// What `skein-worker doctor-facts` prints; null if it cannot be had.
Json ask_worker(const launch::Environment& environment, bool ask_driver) {
  const File answer(::memfd_create("skein-doctor", MFD_CLOEXEC));
  if (!answer) throw_errno("cannot make a memory file");
  launch::ChildCommand command;
  command.arguments = {worker_path().string(), "doctor-facts"};
  if (!ask_driver) command.arguments.emplace_back("--no-gpus");
  for (const auto& [name, value] : environment) command.environment.push_back(name + "=" + value);
  command.out = answer.descriptor();
  try {
    launch::Child child(command);
    pollfd entry{.fd = child.descriptor(), .events = POLLIN, .revents = 0};
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(kFactsLimit).count();
    if (::poll(&entry, 1, static_cast<int>(limit)) <= 0) return nullptr;
    const auto end = child.reap();
    if (!end || end->code != 0 || end->signal != 0) return nullptr;
  } catch (const UserError&) {
    return nullptr;
  }
  std::string text(answer.size(), '\0');
  answer.read_at(0, std::as_writable_bytes(std::span(text)));
  return ordered_json_if_valid(text).value_or(nullptr);
}

// A folder that goes when the trial is over.
class TrialFolder {
 public:
  TrialFolder()
      : path_(fs::temp_directory_path() /
              fmt::format("skein-doctor-{:08x}", std::random_device{}())) {
    make_directories(path_);
  }
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;
  ~TrialFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Two ranks on this machine, as a run would have them.
std::optional<Json> try_all_reduce(const launch::Hardware& hardware) {
  const TrialFolder folder;
  const auto result = folder.path() / "result.json";
  launch::LaunchPlan plan;
  plan.local_ranks = 2;
  const bool cuda = SKEIN_HAS_CUDA && hardware.gpu_problem.empty() && hardware.gpus >= 2;
  plan.device = cuda ? config::Device::kCuda : config::Device::kCpu;
  config::Resolved resolved;
  auto& parallel = resolved.config.parallel;
  parallel.device = plan.device;
  parallel.join_timeout = parallel.ddp_timeout = 60;
  launch::LaunchOptions options{.rank_configuration = config::encode(resolved)};
  options.limits.join = std::chrono::seconds(60);
  options.limits.first_step = std::chrono::seconds(60);
  options.limits.collective = std::chrono::seconds(60);
  const int code =
      launch::launch(plan, {worker_path().string(), "doctor-rank", result.string()}, options);
  if (code != 0) return std::nullopt;
  return ordered_json_if_valid(read_file(result));
}

Finding check_all_reduce(const launch::Hardware& hardware, Json& measured) {
  Finding finding{.name = "all-reduce",
                  .health = Health::kProblem,
                  .found = "two ranks on this machine cannot sum 64 MiB",
                  .advice = "read the report above; look at firewalls on loopback and at memory"};
  try {
    const auto result = try_all_reduce(hardware);
    if (!result || !result->is_object()) return finding;
    measured = *result;
    const bool cuda = measured.value("device", "cpu") == "cuda";
    return {.name = "all-reduce",
            .health = Health::kOk,
            .found = fmt::format("2 {} ranks, 64 MiB in {:.1f} ms: {:.2f} GB/s",
                                 cuda ? "GPU" : "CPU", measured.value("milliseconds", 0.0),
                                 measured.value("gigabytes_per_second", 0.0)),
            .advice = ""};
  } catch (const std::exception& error) {
    finding.found += fmt::format(": {}", error.what());
    return finding;
  }
}

const char* word_of(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kWarning:
      return "warning";
    case Health::kProblem:
      return "problem";
  }
  return "";
}

void print_text(const std::vector<Finding>& findings) {
  for (const auto& finding : findings) {
    fmt::print("{:<8} {:<14} {}\n", word_of(finding.health), finding.name, finding.found);
    if (!finding.advice.empty()) fmt::print("{:<8} {:<14} do: {}\n", "", "", finding.advice);
  }
}

// What was measured, beside the lines about it.
struct Measured {
  Json all_reduce, disk_rate;
};

void print_json(const std::vector<Finding>& findings, const Json& facts, const Measured& measured,
                bool healthy) {
  Json checks = Json::array();
  for (const auto& finding : findings) {
    checks.push_back({{"name", finding.name},
                      {"health", word_of(finding.health)},
                      {"found", finding.found},
                      {"advice", finding.advice}});
  }
  const Json report = {{"healthy", healthy},
                       {"checks", checks},
                       {"worker", facts},
                       {"disk_rate", measured.disk_rate},
                       {"all_reduce", measured.all_reduce}};
  fmt::print("{}\n", report.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

int run_doctor_command(std::span<const std::string> arguments) {
  if (asks_for_help(arguments)) {
    fmt::print("{}", kUsage);
    return 0;
  }
  bool json = false;
  std::string path = ".";
  FlagSet flags("skein doctor");
  flags.add("path", path);
  flags.add("json", json);
  if (const auto words = flags.read(arguments); !words.empty()) {
    throw UserError(fmt::format("skein doctor takes no '{}'\n{}", words[0], kUsage));
  }
  const auto environment = launch::read_environment();
  const auto hardware = launch::look_at_hardware(/*ask_gpus=*/true);
  const auto facts = ask_worker(environment, /*ask_driver=*/hardware.gpu_problem.empty());
  std::vector<Finding> findings = check_gpus(hardware, SKEIN_HAS_CUDA, facts);
  const auto add = [&](const std::vector<Finding>& more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  add(check_network(environment));
  add(check_limits(hardware, environment, facts));
  add({check_launch(hardware, environment, SKEIN_HAS_CUDA)});
  Measured measured;
  add({check_disk_rate(path, measured.disk_rate)});
  if (!facts.is_null()) add({check_all_reduce(hardware, measured.all_reduce)});
  const bool healthy = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.health == Health::kProblem;
  });
  if (json) {
    print_json(findings, facts, measured, healthy);
  } else {
    print_text(findings);
  }
  return static_cast<int>(healthy ? ExitCode::kDone : ExitCode::kUser);
}

}  // namespace skein::cli
