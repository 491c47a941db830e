// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "tests/ranks/load_case.h"

#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "skein/adapter/adapter_config.h"
#include "skein/checkpoint/store.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/model/model.h"
#include "skein/optim/adamw.h"
#include "skein/parallel/sharded.h"
#include "skein/train/run_state.h"

namespace skein::ranks {
namespace {

constexpr const char* kLlama =
    R"({{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 4096,
        "hidden_size": {}, "intermediate_size": {}, "num_hidden_layers": 5,
        "num_attention_heads": 8, "num_key_value_heads": 8, "tie_word_embeddings": false}})";

model::BuildOptions build_options(Held held) {
  if (held == Held::kFull) return {};
  return {.dtype = at::kBFloat16,
          .tuning = {.lora = adapter::parse_adapter_config(
                         R"({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"]})",
                         "adapter_config.json"),
                     .four_bits = plan::FourBits{}}};
}

// What holds the weights of a run.
struct Run {
  Run(plan::HfConfig config, int stage, Held held, comm::Group group)
      : architecture(std::move(config)),
        model(model::build(architecture, build_options(held))),
        sharded(model->table(), {.stage = parallel::kStages[stage]}, std::move(group)),
        optimizer(sharded.owned_ranges(), {}, sharded.memory()),
        metrics({}),
        state({architecture, *model, sharded, optimizer, metrics},
              {.identity = {}, .epochs_of = [](int64_t) { return 0.0; }}) {}

  plan::HfConfig architecture;
  std::unique_ptr<model::Model> model;
  parallel::Sharded sharded;
  optim::AdamW optimizer;
  train::MetricLog metrics;
  train::RunState state;
};

// VmRSS: now; VmHWM: at the most since forget_peak().
int64_t resident_bytes(const std::string& which) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(which + ":")) return 1024 * std::stoll(line.substr(which.size() + 1));
  }
  throw InternalError("/proc/self/status has no " + which);
}

void forget_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  SKEIN_CHECK(file.good(), "the peak of memory cannot be set back");
}

double growth(const fs::path& folder, int stage, Held held, comm::Group& world) {
  world.barrier();
  forget_peak();
  const auto before = resident_bytes("VmRSS");
  Run run(plan::read_hf_config(folder), stage, held, world);
  run.state.policy().load_weights(folder, /*seed=*/1);
  const auto grown = resident_bytes("VmHWM") - before;
  int64_t weights = 0;
  for (const auto& slice : run.sharded.kept_slices(Access::kRead)) {
    weights += static_cast<int64_t>(slice.data.nbytes());
  }
  const auto beside = run.sharded.memory().bytes() - weights;
  const auto file = static_cast<double>(fs::file_size(folder / "model.safetensors"));
  return static_cast<double>(grown - beside) / (held == Held::kFull ? file : file / 2);
}

}  // namespace

fs::path make_model(const fs::path& folder, int64_t channels) {
  const auto config = fmt::format(kLlama, channels, 8 * channels / 3 / 64 * 64);
  Run run(plan::parse_hf_config(config, "config.json"), 0, Held::kFull, comm::Group());
  run.state.policy().initialise(1);
  fs::create_directories(folder);
  MemoryStore store;
  checkpoint::CheckpointStore saver({.output = folder, .token = "t"}, store);
  saver.save(1, run.state.contents(1, /*with_optimizer=*/false));
  SKEIN_CHECK(saver.finish(), "the model could not be saved");
  return folder / "checkpoint-1";
}

std::string load_text(int stage, const fs::path& small, const fs::path& model, Held held) {
  return fmt::format("load {} {} {} {}", stage, static_cast<int>(held), small.string(),
                     model.string());
}

std::string run_load_text(const std::string& text, comm::Group& world) {
  std::istringstream words(text);
  std::string command, small, model;
  int stage = 0, held = 0;
  words >> command >> stage >> held >> small >> model;
  growth(small, stage, static_cast<Held>(held), world);
  return fmt::format("{}", growth(model, stage, static_cast<Held>(held), world));
}

}  // namespace skein::ranks
