// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "skein/adapter/targets.h"
#include "skein/adapter/tensor_names.h"
#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/core/nf4_layout.h"

namespace skein::plan {
namespace {

using adapter::AdapterConfig;

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

std::string last_word(const std::string& module) { return module.substr(module.rfind('.') + 1); }

bool is_or_begins_with(const std::string& path, const std::string& module) {
  return path == module || path.starts_with(module + ".");
}

// `others`: words that may have been meant, besides modules.
[[noreturn]] void refuse_module(const std::string& key, const std::string& name,
                                const std::set<std::string>& known,
                                const std::vector<std::string>& others = {}) {
  std::vector<std::string> names(known.begin(), known.end());
  names.insert(names.end(), others.begin(), others.end());
  throw UserError(fmt::format("{}: the model has no module '{}'{}; it has {}", key, name,
                              config::did_you_mean(name, names),
                              fmt::join(known.begin(), known.end(), ", ")));
}

// Which blocks train, by LLaMA-Factory's rules.
std::set<int64_t> trainable_blocks(const FreezeOptions& options, int64_t layers) {
  const int64_t count = options.trainable_layers;
  std::set<int64_t> blocks;
  if (options.use_llama_pro) {
    if (count < 1 || layers % count != 0) {
      throw UserError(fmt::format(
          "use_llama_pro: freeze_trainable_layers is {}, which does not divide the model's {} "
          "layers",
          count, layers));
    }
    const int64_t stride = layers / count;
    for (int64_t block = stride - 1; block < layers; block += stride) blocks.insert(block);
    return blocks;
  }
  const int64_t begin = count > 0 ? std::max<int64_t>(0, layers - count) : 0;
  const int64_t end = count > 0 ? layers : std::min(-count, layers);
  for (int64_t block = begin; block < end; ++block) blocks.insert(block);
  return blocks;
}

// The parameters of a model as FreezeOptions sees them.
class Freezer {
 public:
  Freezer(const FreezeOptions& options, const Shapes& shapes) : options_(options), shapes_(shapes) {
    for (const auto& unit : shapes.units) blocks_.push_back(unit.root ? -1 : layers_++);
    trainable_ = trainable_blocks(options, layers_);
    check();
  }

  bool trains(const ParameterShape& parameter) const {
    const auto block = blocks_[static_cast<size_t>(parameter.unit)];
    const auto module = module_of(parameter.name);
    // As in LLaMA-Factory: "norm" means the norms of all blocks too.
    const bool is_extra = std::ranges::any_of(options_.extra_modules, [&](const std::string& name) {
      return parameter.name.find(name) != std::string::npos;
    });
    if (is_extra || block < 0) return is_extra;
    return trainable_.contains(block) &&
           std::ranges::any_of(options_.trainable_modules, [&](const std::string& name) {
             return name == "all" || is_or_begins_with(inside(module, block), name);
           });
  }

 private:
  // "model.layers.3.mlp.up_proj": "mlp.up_proj".
  static std::string inside(const std::string& module, int64_t block) {
    const auto number = fmt::format(".{}.", block);
    return module.substr(module.find(number) + number.size());
  }

  void check() const {
    std::set<std::string> inner, outer;
    for (const auto& parameter : shapes_.parameters) {
      const auto block = blocks_[static_cast<size_t>(parameter.unit)];
      auto module = module_of(parameter.name);
      if (block < 0) {
        outer.insert(last_word(module));
        continue;
      }
      // All of its beginnings: "mlp" and "mlp.up_proj".
      for (module = inside(module, block);; module = module_of(module)) {
        inner.insert(module);
        if (module.find('.') == std::string::npos) break;
      }
    }
    for (const auto& name : options_.trainable_modules) {
      if (name != "all" && !inner.contains(name)) {
        refuse_module("freeze_trainable_modules", name, inner);
      }
    }
    for (const auto& name : options_.extra_modules) {
      if (outer.contains(name)) continue;
      if (shapes_.tied_head && name == last_word(module_of(shapes_.tied_head->name))) {
        throw UserError(fmt::format(
            "freeze_extra_modules: '{}' is the embedding in this model (tie_word_embeddings): name "
            "'{}', and both train",
            name, last_word(module_of(shapes_.parameters.front().name))));
      }
      refuse_module("freeze_extra_modules", name, outer);
    }
  }

  const FreezeOptions& options_;
  const Shapes& shapes_;
  std::vector<int64_t> blocks_;  // by unit; -1: outside of blocks
  int64_t layers_ = 0;
  std::set<int64_t> trainable_;
};

std::vector<adapter::Module> modules_of(const Shapes& shapes) {
  std::vector<adapter::Module> modules;
  const auto add = [&](const ParameterShape& parameter) {
    if (parameter.kind == ModuleKind::kVector) return;
    modules.push_back({.name = module_of(parameter.name),
                       .is_linear = parameter.kind != ModuleKind::kEmbedding,
                       .is_head = parameter.kind == ModuleKind::kHead});
  };
  for (const auto& parameter : shapes.parameters) add(parameter);
  if (shapes.tied_head) add(*shapes.tied_head);
  return modules;
}

// PEFT passes over names that match nothing where others do: a typing error would go unnoticed.
void check_names(const Tuning& tuning, const Shapes& shapes,
                 const std::vector<adapter::Module>& modules) {
  const auto& config = *tuning.lora;
  const auto key = [&](const char* of_run, const char* of_file) {
    return tuning.lora_file.empty() ? of_run : fmt::format("{}: {}", tuning.lora_file, of_file);
  };
  std::set<std::string> known;
  for (const auto& module : modules) known.insert(last_word(module.name));
  for (const auto& name : config.targets.names) {
    const bool found = std::ranges::any_of(modules, [&](const adapter::Module& module) {
      return module.name == name || module.name.ends_with("." + name);
    });
    if (found) continue;
    refuse_module(key("lora_target", "target_modules"), name, known, {"all", "all-linear"});
  }
  for (const auto& parameter : shapes.parameters)
    known.insert(last_word(module_of(parameter.name)));
  for (const auto& name : config.modules_to_save) {
    if (adapter::may_be_absent(config, name)) continue;
    const auto one = AdapterConfig{.modules_to_save = {name}};
    const auto saved = [&](const std::string& module) { return is_saved_whole(one, module); };
    const bool found =
        std::ranges::any_of(modules, saved, &adapter::Module::name) ||
        std::ranges::any_of(shapes.parameters, [&](auto& p) { return saved(module_of(p.name)); });
    if (!found) refuse_module(key("modules_to_save", "modules_to_save"), name, known);
  }
}

std::map<std::string, LoraShape> find_adapters(const Tuning& tuning, const Shapes& shapes) {
  const auto& config = *tuning.lora;
  const auto modules = modules_of(shapes);
  check_names(tuning, shapes, modules);
  const adapter::Strengths strengths(config);
  std::map<std::string, LoraShape> adapters;
  for (const auto index : adapter::find_targets(config, modules)) {
    const auto& module = modules[index];
    if (module.is_head && config.dropout > 0) {
      throw UserError(
          "lora_dropout before the output head is not computed: leave lm_head out of lora_target, "
          "train all of it (modules_to_save), or set lora_dropout to 0");
    }
    if (config.ensure_weight_tying && shapes.tied_head && (module.is_head || !module.is_linear)) {
      throw UserError(
          "ensure_weight_tying with an adapter on a tied embedding or head is not "
          "computed: name it in modules_to_save instead");
    }
    adapters[module.name] = {.rank = strengths.rank_of(module.name),
                             .scale = strengths.scale_of(module.name),
                             .dropout = module.is_linear ? config.dropout : 0,  // as in PEFT
                             .dora = config.use_dora};
  }
  return adapters;
}

// Writes the shapes of the adapter of a module whose weight is `weight`.
void add_adapter(const ParameterShape& weight, const LoraShape& lora, Shapes& shapes) {
  const bool embedding = weight.kind == ModuleKind::kEmbedding;
  const bool turned = embedding || weight.kind == ModuleKind::kTransposedLinear;
  const int64_t in = weight.shape[turned ? 0 : 1], out = weight.shape[turned ? 1 : 0];
  const auto add = [&](const char* suffix, std::vector<int64_t> shape) {
    shapes.parameters.push_back({.name = module_of(weight.name) + suffix,
                                 .shape = std::move(shape),
                                 .unit = weight.unit,
                                 .adapter = true});
  };
  add(embedding ? adapter::kEmbeddingA : adapter::kLoraA, {lora.rank, in});
  add(embedding ? adapter::kEmbeddingB : adapter::kLoraB, {out, lora.rank});
  if (lora.dora) add(adapter::kMagnitude, {out});
}

bool unties_head(const Architecture& architecture, const Tuning& tuning) {
  if (!tuning.lora || tuning.lora->ensure_weight_tying) return false;
  const auto shapes = architecture.shapes();
  if (!shapes.tied_head) return false;
  const auto saved = [&](const std::string& parameter) {
    return is_saved_whole(*tuning.lora, module_of(parameter));
  };
  return saved(shapes.parameters.front().name) || saved(shapes.tied_head->name);
}

// The head, which is as large as many layers, keeps its bits, as in transformers.
void pack(const FourBits& four_bits, Shapes& shapes) {
  for (auto& parameter : shapes.parameters) {
    const bool is_linear =
        parameter.kind == ModuleKind::kLinear || parameter.kind == ModuleKind::kTransposedLinear;
    if (!is_linear || parameter.trainable) continue;
    const Nf4Layout layout{.numel = parameter.numel(), .doubly = four_bits.doubly};
    parameter.packed_bytes = layout.bytes();
  }
}

}  // namespace

TunedModel tune(const std::shared_ptr<const Architecture>& architecture, const Tuning& tuning) {
  TunedModel tuned{.architecture = architecture};
  if (unties_head(*architecture, tuning)) tuned.architecture = architecture->untied();
  if (!tuned.architecture) {
    throw UserError(
        "modules_to_save names the embedding or the head, which are one tensor in this "
        "model: give ensure_weight_tying, or adapters for them");
  }
  const auto own = tuned.architecture->shapes();
  if (tuning.lora) tuned.adapters = find_adapters(tuning, own);
  std::function<bool(const ParameterShape&)> trains = [](auto&) { return true; };
  if (tuning.lora) trains = [](auto&) { return false; };
  if (tuning.freeze) {
    trains = [freezer = Freezer(*tuning.freeze, own)](auto& p) { return freezer.trains(p); };
  }

  tuned.shapes = {.units = own.units, .parameters = {}, .tied_head = own.tied_head};
  const auto add_adapter_of = [&](const ParameterShape& weight) {
    const auto found = tuned.adapters.find(module_of(weight.name));
    if (found != tuned.adapters.end()) add_adapter(weight, found->second, tuned.shapes);
  };
  const ParameterShape* weight = nullptr;  // of the module that is being listed
  for (const auto& parameter : own.parameters) {
    if (weight && module_of(weight->name) != module_of(parameter.name)) {
      add_adapter_of(*std::exchange(weight, nullptr));
    }
    if (parameter.kind != ModuleKind::kVector) weight = &parameter;
    tuned.shapes.parameters.push_back(parameter);
    const auto module = module_of(parameter.name);
    tuned.shapes.parameters.back().trainable =
        trains(parameter) || (tuning.lora && is_saved_whole(*tuning.lora, module));
  }
  if (weight) add_adapter_of(*weight);
  if (own.tied_head) add_adapter_of(*own.tied_head);
  if (tuning.four_bits) pack(*tuning.four_bits, tuned.shapes);
  if (tuned.shapes.trainable_numel() == 0) {
    throw UserError(
        "nothing of the model would train: freeze_trainable_layers is 0, and "
        "freeze_extra_modules names nothing");
  }
  return tuned;
}

}  // namespace skein::plan
