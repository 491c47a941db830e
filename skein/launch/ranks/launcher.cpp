// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/ranks/launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>

#include "skein/core/error.h"
#include "skein/core/host.h"
#include "skein/core/log.h"
#include "skein/core/log_writer.h"
#include "skein/core/terminal_stream.h"
#include "skein/launch/placement/interface.h"
#include "skein/launch/placement/numa.h"
#include "skein/launch/placement/variables.h"
#include "skein/launch/process/early_stop.h"
#include "skein/launch/process/signal_inbox.h"
#include "skein/launch/process/slow_disk.h"
#include "skein/launch/ranks/head_node.h"
#include "skein/launch/ranks/lease.h"
#include "skein/launch/ranks/local_ranks.h"
#include "skein/launch/ranks/node_link.h"
#include "skein/launch/ranks/node_loop.h"
#include "skein/launch/watch/node_identity.h"

namespace skein::launch {
namespace {

constexpr std::chrono::seconds kLongestRemoval{5};  // by a disk that may not answer

// What every rank gets besides its own numbers; what the user has set stays.
Environment rank_environment(const LaunchPlan& plan, const Interface& interface) {
  auto environment = read_environment();
  environment["OMP_NUM_THREADS"] = plan.omp_num_threads;
  for (const auto& [name, value] : kMathVariables) environment.emplace(name, value);
  if (plan.visible_devices) environment["CUDA_VISIBLE_DEVICES"] = *plan.visible_devices;
  if (plan.nodes > 1 && !interface.name.empty()) {
    environment.emplace("NCCL_SOCKET_IFNAME", interface.name);
    environment.emplace("GLOO_SOCKET_IFNAME", interface.name);
  }
  return environment;
}

// This machine's interface towards the other nodes.
Interface choose_interface(const LaunchPlan& plan) {
  if (plan.nodes == 1) return {.address = "127.0.0.1", .name = {}};
  auto chosen = plan.local_addr ? Interface{.address = *plan.local_addr, .name = {}}
                                : route_to(plan.master_addr);
  // The route to an address of this machine goes over loopback; take the interface that has it.
  for (const auto& interface : list_interfaces()) {
    if (interface.address == chosen.address) chosen.name = interface.name;
  }
  if (plan.local_addr && chosen.name.empty()) {
    throw UserError(fmt::format("--local-addr {} is no address of this machine", *plan.local_addr));
  }
  log_info("launch: node {} of {} speaks with the others from {}{}", plan.node_rank, plan.nodes,
           chosen.address, chosen.name.empty() ? "" : fmt::format(" ({})", chosen.name));
  const auto is_loopback = [](const std::string& host) {
    return host.starts_with("127.") || host == "::1" || host == "localhost";
  };
  if (plan.node_rank == 0 && is_loopback(chosen.address) && !is_loopback(plan.master_addr)) {
    log_warning(
        "launch: {} is a loopback address on this machine, where no other reaches it: give "
        "--master-addr an address that they can reach, or correct /etc/hosts",
        plan.master_addr);
  }
  return chosen;
}

int code_of_current_exception() {
  try {
    throw;
  } catch (const UserError&) {
    return static_cast<int>(ExitCode::kUser);
  } catch (const CommError&) {
    return static_cast<int>(ExitCode::kComm);
  } catch (const IoError&) {
    return static_cast<int>(ExitCode::kIo);
  } catch (const Stopped&) {
    return static_cast<int>(ExitCode::kStopped);
  } catch (...) {
    return static_cast<int>(ExitCode::kInternal);
  }
}

NodeIdentity identify(const LaunchPlan& plan, const LaunchOptions& options, const std::string& data,
                      const std::string& token) {
  NodeIdentity identity;
  identity.node = plan.node_rank;
  identity.host = host_name();
  identity.local_ranks = plan.local_ranks;
  identity.device = plan.device == config::Device::kCuda ? "cuda" : "cpu";
  identity.binary = binary_digest();
  set_configuration(identity, options.configuration_text);
  identity.data = data;
  identity.output_dir = options.output.string();
  if (options.output.empty()) return identity;
  identity.output_problem = try_to_write(options.output);
  identity.sees_token = sees_token(options.output, token);
  return identity;
}

// How a launcher hears of signals: until its loop listens, `early_stop` ends it.
struct Ears {
  const SignalInbox& inbox;
  std::function<void()> put_away;  // for an early stop
  std::optional<EarlyStop> early_stop = {};
};

// `claim` takes an output folder that is the node's own, once it has joined, and returns the
// problem.
int run_node(const RankSetup& setup, const LaunchOptions& options, Ears& ears, Commander& commander,
             const std::function<std::string()>& claim) {
  const auto& plan = setup.plan;
  const auto& inbox = ears.inbox;
  NodeLoop loop(setup, inbox, commander);
  std::string data;
  try {
    // No rank has to stop with this process yet.
    if (options.prepare) inbox.with_default_pause([&] { data = options.prepare(); });
  } catch (const std::exception& error) {
    if (plan.nodes > 1) loop.give_up(code_of_current_exception(), error.what());
    throw;
  }
  ears.early_stop.reset();
  if (plan.nodes == 1) return loop.run({});
  return loop.run([&](const std::string& token) {
    const EarlyStop early_stop(
        ears.put_away);  // the loop does not listen while the folder is tried
    auto identity = identify(plan, options, data, token);
    if (!identity.sees_token && identity.output_problem.empty()) identity.output_problem = claim();
    return identity;
  });
}

fs::path shared_secret_file(const LaunchOptions& options) {
  return options.output / ".skein-secret";
}

// With several nodes typed by hand and no secret that all of them have.
bool runs_open(const LaunchPlan& plan, const LaunchOptions& options) {
  return !options.secret && !plan.secret_file &&
         (options.output.empty() || !options.needs_shared_output);
}

// What node 0 has in the output folder while it runs: the lease, and what it left there for the
// others.
class Belongings {
 public:
  Belongings(const LaunchPlan& plan, const LaunchOptions& options)
      : plan_(plan), options_(options) {}
  ~Belongings() { put_away(); }
  Belongings(const Belongings&) = delete;

  void take_lease() {
    auto lease = std::make_unique<Lease>(options_.output);  // may wait
    const std::lock_guard lock(mutex_);
    lease_ = std::move(lease);
  }
  const Lease* lease() const { return lease_.get(); }

  // On any thread.
  void put_away() {
    const std::lock_guard lock(mutex_);
    if (!lease_) return;
    lease_->look();
    if (plan_.nodes > 1 && !lease_->lost()) {  // otherwise they are those of another run
      try_for(kLongestRemoval, [output = options_.output, secret = shared_secret_file(options_)] {
        run_apart([&] {
          remove_token(output);
          std::error_code ignored;
          fs::remove(secret, ignored);
        });
        return true;
      });
    }
    lease_.reset();
  }

 private:
  const LaunchPlan& plan_;
  const LaunchOptions& options_;
  std::mutex mutex_;
  std::unique_ptr<Lease> lease_;
};

control::Secret choose_secret(const LaunchPlan& plan, const LaunchOptions& options) {
  if (plan.nodes == 1) return control::make_secret();
  if (options.secret) return *options.secret;
  if (plan.secret_file) return control::read_secret_file(*plan.secret_file);
  if (runs_open(plan, options)) {
    log_warning(
        "launch: the control store is open to everyone who reaches {} port {}: no secret is shared "
        "(give all nodes the same --secret-file)",
        plan.master_addr, plan.master_port);
    return control::Secret{};
  }
  control::write_secret_file(shared_secret_file(options));
  return control::read_secret_file(shared_secret_file(options));
}

int run_head(RankSetup setup, const LaunchOptions& options, Ears& ears, Belongings& belongings) {
  const auto& plan = setup.plan;
  if (!options.output.empty()) belongings.take_lease();
  const auto secret = choose_secret(plan, options);
  const auto token = make_run_token();
  // Written before this node prepares its data: others may be ready earlier and look for it.
  if (plan.nodes > 1 && !options.output.empty()) write_token(options.output, token);
  HeadNode head(plan, options, secret, token);
  setup.rank.store_host = head.host();
  setup.rank.store_port = head.port();
  setup.lease = belongings.lease();
  return run_node(setup, options, ears, head, [] { return std::string(); });
}

// Returns why the lease cannot be had; empty when it was taken.
std::string take_lease(const fs::path& output, std::optional<Lease>& lease) try {
  lease.emplace(output);
  return "";
} catch (const std::runtime_error& error) {
  return error.what();
}

int run_other_node(RankSetup setup, const LaunchOptions& options, Ears& ears) {
  const auto& plan = setup.plan;
  if (!options.secret && plan.secret_file)
    control::read_secret_file(
        *plan.secret_file);  // so that a bad file is told before anything starts
  NodeLinkOptions link{.host = plan.master_addr,
                       .port = plan.master_port,
                       .node = plan.node_rank,
                       .silence = options.node_silence,
                       .join_timeout = options.join_timeout};
  link.secret = [&] {
    if (options.secret) return *options.secret;
    if (plan.secret_file) return control::read_secret_file(*plan.secret_file);
    if (runs_open(plan, options)) return control::Secret{};
    const auto path = shared_secret_file(options);
    std::error_code error;
    if (!fs::exists(path, error)) {
      throw CommError(
          fmt::format("node 0 has not written {} yet (is output_dir one folder for all nodes? if "
                      "not, give all the same --secret-file, and save_on_each_node=true)",
                      path.string()));
    }
    return control::read_secret_file(path);
  };
  std::optional<Lease> lease;  // of a folder that is this node's own
  const auto claim = [&]() -> std::string {
    if (options.needs_shared_output) return "";
    const auto problem = take_lease(options.output, lease);
    setup.lease = lease ? &*lease : nullptr;
    return problem;
  };
  NodeLink commander(link);
  setup.rank.store_host = plan.master_addr;
  setup.rank.store_port = plan.master_port;
  return run_node(setup, options, ears, commander, claim);
}

// The first rank may have a live line on the terminal: ours takes its place.
void write_over_live_line() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  if (isatty(STDERR_FILENO) != 1 || set("CI") || set("NO_COLOR")) return;
  set_log_writer(
      [](std::string_view line) { terminal_error().write(fmt::format("\r\033[K{}", line)); });
}

}  // namespace

int launch(const LaunchPlan& plan, const std::vector<std::string>& arguments,
           const LaunchOptions& options) {
  const SignalInbox inbox(/*with_pauses=*/true);  // before any thread: they inherit the mask
  Belongings belongings(plan, options);
  Ears ears{.inbox = inbox, .put_away = [&] { belongings.put_away(); }};
  ears.early_stop.emplace(ears.put_away);
  write_over_live_line();
  const auto interface = choose_interface(plan);
  RankSetup setup{.plan = plan,
                  .arguments = arguments,
                  .configuration = options.rank_configuration,
                  .environment = rank_environment(plan, interface),
                  .rank = {},
                  .host = host_name(),
                  .grace = options.grace,
                  .longest_end = options.longest_end,
                  .cpus = bind_ranks(plan)};
  setup.rank.device = plan.device;
  setup.rank.interface = interface.address;
  setup.rank.may_give_up = options.ladder.has_value();
  if (options.ladder) setup.configure = options.ladder->configure;
  return plan.node_rank == 0 ? run_head(std::move(setup), options, ears, belongings)
                             : run_other_node(std::move(setup), options, ears);
}

}  // namespace skein::launch
