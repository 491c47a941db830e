// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "skein/cli/bench_rollout.h"
#include "skein/cli/flag_set.h"
#include "skein/cli/load_model.h"
#include "skein/cli/scaling/flags.h"
#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/optim/update_bench.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/rules.h"
#include "skein/spill/disk_rate.h"
#include "skein/tensor/dtype.h"
#include "skein/train/bench/bench.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein bench train MODEL [--batch 8] [--tokens 1024] [--steps 20] [--warmup 5] [--zero 0]\n"
    "                        [--dtype float32|bfloat16|float16|float64] [--recompute]\n"
    "                        [--offload-activations]\n"
    "                        [--device auto|cpu|cuda|cuda:N]\n"
    "                        [--lora RANK] [--lora-target q_proj,k_proj,v_proj,o_proj] [--4bit]\n"
    "                        [--packed] [--masked SHARE] [--trace FILE]\n"
    "                        [--accumulation 1] [--no-clipping]\n"
    "                        [--offload] [--offload-ratio 1] [--offload-param] [--nvme-path "
    "FOLDER]\n"
    "\n"
    "MODEL is a folder with config.json. Prints one JSON row: tokens per second of the median "
    "step,\n"
    "milliseconds, seconds that drawing the first weights took, peak memory, and the first and "
    "last\n"
    "loss (the last must be lower). --lora trains adapters alone, --4bit beside weights in NF4 "
    "with\n"
    "double quantisation; --packed fills the rows with documents of 256 to 2047 tokens that do "
    "not\n"
    "see each other, of which --masked leaves out the first SHARE of the targets. --offload puts\n"
    "optimizer states, --offload-param the shards of --zero 3 too, into host memory.\n"
    "\n"
    "skein bench adamw [--elements 67108864] [--dtype float32|bfloat16|float16] [--rounds 10]\n"
    "                  [--threads N]\n"
    "\n"
    "Prints one JSON row: bytes per second of the CPU's AdamW, of a triad (what memory allows) and "
    "of\n"
    "torch's fused AdamW, each the best of the rounds.\n"
    "\n"
    "skein bench disk [--path .] [--bytes 2147483648] [--rounds 5]\n"
    "\n"
    "Prints one JSON row: bytes per second at which states that are offloaded to nvme are written "
    "and\n"
    "read there, checksums included, beside the raw rate of the same disk in the same run, and "
    "the\n"
    "ratio. Takes twice --bytes of room, and leaves nothing behind.\n";

void read_tuning(const std::string& targets, std::optional<double> masked,
                 train::BenchOptions& options) {
  if (!targets.empty()) options.lora_targets.clear();
  std::istringstream words(targets);
  for (std::string name; std::getline(words, name, ',');) options.lora_targets.push_back(name);
  if (!masked) return;
  if (!options.packed) throw UserError("--masked is of documents: give --packed too");
  if (!(*masked >= 0 && *masked < 1)) {
    throw UserError(fmt::format("--masked is {}, expected 0 to 1, 1 excluded", *masked));
  }
  options.masked = *masked;
}

train::BenchOptions parse(std::span<const std::string> arguments) {
  train::BenchOptions options;
  std::string device = "auto", trace, targets, nvme;
  std::optional<DType> dtype;
  std::optional<double> masked, ratio;
  int64_t stage = 0;
  bool no_clipping = false, offload = false, offload_parameters = false;
  FlagSet flags("skein bench train");
  flags.add("batch", options.rows, /*least=*/1);
  flags.add("tokens", options.tokens, /*least=*/2);
  flags.add("steps", options.steps, /*least=*/1);
  flags.add("warmup", options.warmup_steps);
  flags.add("zero", stage);
  flags.add("dtype", dtype);
  flags.add("device", device);
  flags.add("trace", trace);
  flags.add("recompute", options.recompute);
  flags.add("offload-activations", options.offload_activations);
  flags.add("lora", options.lora_rank, /*least=*/1);
  flags.add("lora-target", targets);
  flags.add("4bit", options.four_bits);
  flags.add("packed", options.packed);
  flags.add("masked", masked);
  flags.add("accumulation", options.accumulation, /*least=*/1);
  flags.add("no-clipping", no_clipping);
  flags.add("offload", offload);
  flags.add("offload-param", offload_parameters);
  flags.add("offload-ratio", ratio);
  flags.add("nvme-path", nvme);
  const auto words = flags.read(arguments);
  if (words.size() != 1) throw UserError(std::string("which model?\n") + kUsage);
  if (stage > 3) throw UserError(fmt::format("--zero is {}, expected 0, 1, 2 or 3", stage));
  const auto dimensions = plan::read_hf_config(words.front()).dimensions();
  if (dimensions.positions_are_learned && options.tokens > dimensions.positions) {
    throw UserError(fmt::format("--tokens is {}, but the model knows {} positions", options.tokens,
                                dimensions.positions));
  }
  if (offload_parameters && stage < 3) throw UserError("--offload-param is for --zero 3");
  if (ratio && !(*ratio >= 0 && *ratio <= 1)) {
    throw UserError(fmt::format("--offload-ratio is {}, expected 0 to 1", *ratio));
  }
  const auto outside = nvme.empty() ? config::Offload::kCpu : config::Offload::kNvme;
  options.offload =
      plan::offload_of({.offload_optimizer = offload ? outside : config::Offload::kNone,
                        .offload_param = offload_parameters ? outside : config::Offload::kNone,
                        .offload_ratio = ratio.value_or(1)});
  if (!nvme.empty() && !options.offload.uses_disk()) {
    throw UserError("--nvme-path is where --offload or --offload-param go: give one of them");
  }
  options.disk = {.folder = nvme};
  if (no_clipping) options.max_grad_norm = 0;
  if (options.four_bits && options.lora_rank == 0) {
    throw UserError("--4bit is of weights beside adapters: give --lora RANK too");
  }
  read_tuning(targets, masked, options);
  options.recompute = options.recompute || options.offload_activations;
  if (!trace.empty()) File::create(trace);  // now, rather than after minutes
  options.device = device_of(device);
  const bool cuda = options.device.is_cuda();
  options.model = words.front();
  options.stage = static_cast<int>(stage);
  options.dtype = tensor::scalar_type_of(dtype.value_or(cuda ? DType::kBF16 : DType::kF32));
  if (options.four_bits && options.dtype == at::kDouble) {
    throw UserError("--4bit computes in float32, bfloat16 or float16, not float64");
  }
  options.trace = trace;
  return options;
}

DType update_dtype(const std::string& word) {
  for (const auto dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (word == dtype_word(dtype)) return dtype;
  }
  throw UserError(fmt::format("--dtype is '{}', expected float32, bfloat16 or float16", word));
}

int bench_adamw(std::span<const std::string> arguments) {
  optim::UpdateBenchOptions options{.threads = at::get_num_threads()};
  std::string dtype(dtype_word(options.dtype));
  int64_t threads = options.threads;
  FlagSet flags("skein bench adamw");
  flags.add("elements", options.elements, /*least=*/128);
  flags.add("dtype", dtype);
  flags.add("rounds", options.rounds, /*least=*/1);
  flags.add("threads", threads, /*least=*/1);
  const auto words = flags.read(arguments);
  if (!words.empty()) throw UserError(fmt::format("what is '{}'?\n{}", words.front(), kUsage));
  options.dtype = update_dtype(dtype);
  options.elements -= options.elements % 128;  // whole shards
  options.threads = static_cast<int>(std::min<int64_t>(threads, 1024));
  const auto [update, triad, torch] = optim::bench_update(options);
  const nlohmann::ordered_json row = {
      {"elements", options.elements},    {"dtype", dtype_word(options.dtype)},
      {"threads", options.threads},      {"bytes_per_second", update},
      {"triad_bytes_per_second", triad}, {"torch_bytes_per_second", torch},
      {"of_triad", update / triad},      {"of_torch", update / torch}};
  fmt::print("{}\n", row.dump());
  return 0;
}

int bench_disk(std::span<const std::string> arguments) {
  spill::DiskBenchOptions options;
  std::string path = options.folder.string();
  auto bytes = static_cast<int64_t>(options.bytes);
  int64_t rounds = options.rounds;
  FlagSet flags("skein bench disk");
  flags.add("path", path);
  flags.add("bytes", bytes, /*least=*/1);
  flags.add("rounds", rounds, /*least=*/1);
  const auto words = flags.read(arguments);
  if (!words.empty()) throw UserError(fmt::format("what is '{}'?\n{}", words.front(), kUsage));
  options.folder = path;
  options.bytes = static_cast<uint64_t>(bytes);
  options.rounds = static_cast<int>(std::min<int64_t>(rounds, 1000));
  const auto result = spill::bench_disk(options);
  const auto setting = [](const spill::RawSetting& raw) {
    return nlohmann::ordered_json{{"request_bytes", raw.request_bytes}, {"depth", raw.depth}};
  };
  const nlohmann::ordered_json row = {{"path", path},
                                      {"bytes", result.bytes},
                                      {"direct", result.is_direct},
                                      {"io_uring", result.uses_io_uring},
                                      {"read_bytes_per_second", result.spill.read},
                                      {"write_bytes_per_second", result.spill.write},
                                      {"raw_read_bytes_per_second", result.raw.read},
                                      {"raw_write_bytes_per_second", result.raw.write},
                                      {"raw_read", setting(result.raw_read_setting)},
                                      {"raw_write", setting(result.raw_write_setting)},
                                      {"read_of_raw", result.share.read},
                                      {"write_of_raw", result.share.write}};
  fmt::print("{}\n", row.dump());
  return 0;
}

}  // namespace

int run_bench_command(std::span<const std::string> arguments) {
  if (arguments.empty() || asks_for_help(arguments)) {
    fmt::print("{}\n{}\n{}", kUsage, kRolloutUsage, kScalingUsage);
    return 0;
  }
  if (arguments[0] == "scaling") return run_scaling_rank(arguments.subspan(1));
  if (arguments[0] == "adamw") return bench_adamw(arguments.subspan(1));
  if (arguments[0] == "disk") return bench_disk(arguments.subspan(1));
  if (arguments[0] == "rollout") return bench_rollout(arguments.subspan(1));
  if (arguments[0] != "train") {
    throw UserError(fmt::format(
        "skein bench has no '{}'{}\n{}", arguments[0],
        config::did_you_mean(arguments[0], {"train", "rollout", "scaling", "adamw", "disk"}),
        kUsage));
  }
  const auto options = parse(arguments.subspan(1));
  const c10::DeviceGuard guard(options.device);
  const auto result = train::bench_training(options);
  const double seconds = result.median_seconds();
  const auto tokens = static_cast<double>(options.rows * options.tokens * options.accumulation);
  const nlohmann::ordered_json row = {
      {"model", options.model.string()},
      {"parameters", result.num_parameters},
      {"trainable", result.num_trainable},
      {"batch", options.rows},
      {"tokens", options.tokens},
      {"targets", result.num_targets},
      {"stage", options.stage},
      {"dtype", dtype_word(tensor::dtype_of(options.dtype))},
      {"weight_bits",
       options.four_bits ? 4 : 8 * static_cast<int64_t>(c10::elementSize(options.dtype))},
      {"device", options.device.str()},
      {"tokens_per_second", tokens / seconds},
      {"milliseconds", seconds * 1e3},
      {"first_weights_seconds", result.first_weights_seconds},
      {"peak_flat_bytes", result.peak_flat_bytes},
      {"peak_host_bytes", result.peak_host_bytes},
      {"peak_device_bytes", result.peak_device_bytes},
      {"peak_stash_bytes", result.peak_stash_bytes},
      {"first_loss", result.first_loss},
      {"last_loss", result.last_loss}};
  fmt::print("{}\n", row.dump());
  if (result.last_loss < result.first_loss) return 0;
  throw InternalError("the loss did not fall: the figure is of no use");
}

}  // namespace skein::cli
