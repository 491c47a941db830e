// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// skein-worker: the program behind `skein` that links LibTorch. One process per rank.

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "skein/board/board.h"
#include "skein/cli/commands.h"
#include "skein/cli/guard.h"
#include "skein/cli/rank_run.h"
#include "skein/config/batch_plan.h"
#include "skein/core/error.h"
#include "skein/core/host_memory.h"
#include "skein/plan/ladder.h"
#include "skein/train/offline.h"
#include "skein/train/online/online.h"
#include "skein/train/place.h"

namespace skein::cli {
namespace {

// What says that memory is full, in one line; none: another failure. Of a CPU torch throws no error
// of its own kind.
std::optional<std::string> want_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return "the host's memory is full";
  if (dynamic_cast<const WantOfMemory*>(&error)) return error.what();
  const auto* failure = dynamic_cast<const c10::Error*>(&error);
  if (!failure) return std::nullopt;
  const std::string text = failure->what_without_backtrace();
  const auto line = text.substr(0, text.find('\n'));
  if (dynamic_cast<const c10::OutOfMemoryError*>(failure))
    return "the GPU's memory is full: " + line;
  const auto host = line.find("DefaultCPUAllocator");
  if (host == std::string::npos) return std::nullopt;
  return "the host's memory is full: " + line.substr(host);
}

plan::Machine machine_of(const train::World& world) {
  return {.ranks = world.group.size(),
          .local_ranks = world.local_size,
          .place = train::place_of(world.device),
          .memory = {.host = available_memory()}};
}

// Runs `body`; memory that is too small is told as what it is, with what to do. Before its second
// update the launcher may do it.
train::Outcome with_memory_advice(const config::Resolved& resolved, const train::World& world,
                                  const std::function<train::Outcome()>& body) try {
  return body();
} catch (const std::exception& error) {
  const auto reason = want_of_memory(error);
  if (!reason) throw;
  board::report_out_of_memory();
  const auto seen = board::own_board();
  if (world.may_give_up && seen && board::can_start_with_less(*seen)) {
    throw MemoryShortage(*reason);
  }
  throw UserError(fmt::format("{}\nTake less at a time: {}. `skein plan` estimates what is needed.",
                              *reason, plan::advice_without_memory(resolved, machine_of(world))));
}

int run_training(const config::Resolved& resolved, train::World& world) {
  const auto batches = config::plan_batches(resolved, world.group.size());
  const bool is_online = config::is_online(resolved.config.stage);
  const auto outcome = with_memory_advice(resolved, world, [&] {
    return is_online ? train::run_online(resolved, batches, world)
                     : train::run_offline(resolved, batches, world);
  });
  return static_cast<int>(outcome == train::Outcome::kStopped ? ExitCode::kStopped
                                                              : ExitCode::kDone);
}

// The words are the launcher's, for `ps`: the configuration has been handed over.
int run_train_rank(std::span<const std::string> /*arguments*/) {
  return run_rank({.body = run_training, .prepare = prepare_training_data, .ends_by_itself = true});
}

// LibTorch multiplies 16-bit matrices on CPUs with AMX tiles where the CPU says that it has them,
// and dies of SIGILL on some virtual machines that say so (plain PyTorch 2.11 does too). oneDNN
// reads the limit once, at its first product; what the user has set stays.
void keep_off_amx_tiles() { ::setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", /*overwrite=*/0); }

struct Command {
  const char* name;
  int (*run)(std::span<const std::string> arguments);
};

constexpr Command kCommands[] = {
    {"train", run_train_rank},         {"generate", run_generate_command},
    {"chat", run_chat_command},        {"eval", run_eval_rank},
    {"bench", run_bench_command},      {"verify-strategy", run_verify_rank},
    {"gradients", run_gradients_rank}, {"doctor-facts", run_doctor_facts},
    {"doctor-rank", run_doctor_rank},  {"debug-forward", run_debug_forward},
    {"debug-nf4", run_debug_nf4}};

int run(const std::vector<std::string>& arguments) {
  for (const auto& command : kCommands) {
    if (!arguments.empty() && arguments[0] == command.name) {
      const auto rest = std::span(arguments).subspan(1);
      if (command.run == run_train_rank) return command.run(rest);
      return with_output([&] { return command.run(rest); });
    }
  }
  throw UserError("skein-worker is started by skein: type `skein train CONFIG.yaml`");
}

}  // namespace
}  // namespace skein::cli

int main(int argc, char** argv) {
  skein::cli::open_missing_streams();
  skein::cli::keep_off_amx_tiles();
  c10::initLogging();  // reads TORCH_CPP_LOG_LEVEL, which Python's torch would do
  const int code = skein::cli::run_guarded(
      [&] { return skein::cli::run(std::vector<std::string>(argv + 1, argv + argc)); });
  skein::cli::end_at_once(code);  // threads of LibTorch have nothing left to say
}
