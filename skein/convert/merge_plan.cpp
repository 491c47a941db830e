// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/merge_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "skein/adapter/targets.h"
#include "skein/adapter/tensor_names.h"
#include "skein/checkpoint/files/tensor_match.h"
#include "skein/convert/float_values.h"
#include "skein/core/error.h"
#include "skein/plan/families/architecture.h"

namespace skein::convert {
namespace {

using checkpoint::StoredTensor;
using Shape = std::vector<uint64_t>;

// What an adapter holds for one tensor of the base.
struct Change {
  const StoredTensor* rebased = nullptr;   // the base's own weight, saved beside an adapter of it
  const StoredTensor* replaced = nullptr;  // a module that was trained whole
  const LoraTensors* lora = nullptr;
};

// A module that has a weight.
struct BaseModule {
  adapter::Module module;
  bool is_matrix = true;
  const Change* change = nullptr;
};

std::string shown(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

class Planner {
 public:
  Planner(const BaseModel& base, const checkpoint::ModelFiles& adapter,
          const adapter::AdapterConfig& config)
      : base_(base),
        adapter_(adapter),
        config_(config),
        strengths_(config),
        scores_(config.task_type == adapter::kScores) {}

  MergePlan plan() && {
    for (const auto& file : adapter_.files) {
      for (const auto& tensor : file.header.tensors) sort(adapter_.tensors.at(tensor.name));
    }
    for (const auto& [module, lora] : plan_.loras) place(lora);
    refuse_problems();
    check_whole();
    for (const auto& file : base_.files.files) {
      for (const auto& tensor : file.header.tensors) {
        if ((base_.tied_head || scores_) && tensor.name == kHeadName) continue;
        add_job(tensor.name, base_.files.tensors.at(tensor.name), changes_[tensor.name]);
      }
    }
    if (scores_) add_score();
    if (base_.tied_head && !scores_) settle_tied_head();
    note_vocabulary();
    refuse_problems();
    return std::move(plan_);
  }

 private:
  // Adds a tensor of the adapter to the module, or the tensor of the base, that it belongs to.
  void sort(const StoredTensor& stored) {
    const auto& full = stored.tensor->name;
    if (!full.starts_with(adapter::kNamePrefix)) return unknown_.push_back(full);
    const auto name = full.substr(adapter::kNamePrefix.size());
    const auto part = [&](std::string_view suffix) -> LoraTensors* {
      if (!name.ends_with(suffix)) return nullptr;
      auto module = name.substr(0, name.size() - suffix.size());
      auto& lora = plan_.loras[module];
      lora.module = std::move(module);
      return &lora;
    };
    if (auto* lora = part(adapter::kLoraA)) {
      lora->a = &stored;
    } else if (auto* lora = part(adapter::kLoraB)) {
      lora->b = &stored;
    } else if (auto* lora = part(adapter::kEmbeddingA)) {
      lora->a = &stored;
      lora->is_embedding = true;
    } else if (auto* lora = part(adapter::kEmbeddingB)) {
      lora->b = &stored;
      lora->is_embedding = true;
    } else if (auto* lora = part(adapter::kMagnitude)) {
      lora->magnitude = &stored;
    } else {
      sort_whole(name, stored);
    }
  }

  void sort_whole(std::string name, const StoredTensor& stored) {
    const auto inner = std::string(adapter::kBaseLayer) + ".";
    const auto inside = name.rfind(inner);
    const bool is_base = inside != std::string::npos;
    if (is_base) name.replace(inside, inner.size(), ".");
    const auto target = name_in_base(name);
    if (target.empty() && scores_ && name == plan::kScoreName) {
      score_ = &stored;
      ++plan_.num_replaced;
      return;
    }
    if (target.empty()) return unknown_.push_back(stored.tensor->name);
    auto& held = is_base ? changes_[target].rebased : changes_[target].replaced;
    if (held != nullptr) return twice_.push_back(stored.tensor->name);
    held = &stored;
    if (!is_base) ++plan_.num_replaced;
  }

  // Empty where the base has no such tensor.
  std::string name_in_base(const std::string& name) const {
    if (const auto* stored = checkpoint::find_tensor(base_.files, name, /*foreign=*/true)) {
      return stored->tensor->name;
    }
    return base_.tied_head && name == kHeadName ? name : "";
  }

  void place(const LoraTensors& lora) {
    if (lora.a == nullptr || lora.b == nullptr) return incomplete_.push_back(lora.module);
    if (config_.use_dora != (lora.magnitude != nullptr)) return incomplete_.push_back(lora.module);
    const auto target = name_in_base(lora.module + ".weight");
    if (target.empty()) return unknown_.push_back(lora.a->tensor->name);
    auto& held = changes_[target].lora;
    if (held != nullptr) return twice_.push_back(lora.a->tensor->name);
    held = &lora;
  }

  static std::string module_of(const std::string& tensor) {
    return tensor.substr(0, tensor.rfind('.'));
  }
  static std::string last_word(const std::string& module) {
    return module.substr(module.rfind('.') + 1);
  }

  // Of the base, as the adapter calls them: files of a base alone leave out the first word.
  std::vector<BaseModule> modules_of_base() {
    std::set<std::string> linear_words;  // what `all-linear` has meant
    std::string added, left_out;
    for (const auto& [name, lora] : plan_.loras) {
      if (!lora.is_embedding) linear_words.insert(last_word(name));
      const auto stored = module_of(name_in_base(name + ".weight"));
      if (name.ends_with("." + stored)) added = name.substr(0, name.size() - stored.size());
      if (stored.ends_with("." + name)) left_out = stored.substr(0, stored.size() - name.size());
    }
    const auto called = [&](const std::string& stored) {
      if (!left_out.empty() && stored.starts_with(left_out)) return stored.substr(left_out.size());
      return stored + ".weight" == kHeadName ? stored : added + stored;
    };
    std::vector<BaseModule> modules;
    const auto add = [&](const std::string& tensor, size_t dimensions) {
      if (!tensor.ends_with(".weight")) return;
      const auto& change = changes_[tensor];
      auto name = change.lora ? change.lora->module : called(module_of(tensor));
      const bool is_linear = change.lora
                                 ? !change.lora->is_embedding
                                 : linear_words.empty() || linear_words.contains(last_word(name));
      modules.push_back({.module = {.name = std::move(name),
                                    .is_linear = is_linear,
                                    .is_head = tensor == kHeadName},
                         .is_matrix = dimensions == 2,
                         .change = &change});
    };
    for (const auto& [name, stored] : base_.files.tensors) {
      if (!base_.tied_head || name != kHeadName) add(name, stored.tensor->shape.size());
    }
    if (base_.tied_head) add(kHeadName, 2);
    return modules;
  }

  bool is_built(const std::string& module) const {
    const auto layer = adapter::layer_of(module);
    return !layer || !base_.num_layers || *layer < *base_.num_layers;
  }

  // All that adapter_config.json says is changed must be there, and nothing besides.
  void check_whole() {
    const auto found = modules_of_base();
    std::vector<adapter::Module> modules;
    for (const auto& one : found) modules.push_back(one.module);
    const auto targets = adapter::find_targets(config_, modules);
    const std::set<size_t> targeted(targets.begin(), targets.end());
    for (size_t i = 0; i < modules.size(); ++i) {
      const auto& [module, is_matrix, change] = found[i];
      const bool is_target = targeted.contains(i);
      if (change->lora && !is_target) untargeted_.push_back(module.name);
      if (!is_built(module.name)) continue;
      if (is_target && is_matrix && !change->lora) missing_.push_back(module.name);
      if (is_saved_whole(config_, module.name) && !change->replaced && !is_tied(module)) {
        missing_.push_back(module.name);
      }
    }
    check_saved_names(modules);
  }

  // The head's rows are the embedding's, which need not be stored twice.
  bool is_tied(const adapter::Module& module) const {
    return module.is_head && base_.tied_head && config_.ensure_weight_tying;
  }

  void check_saved_names(const std::vector<adapter::Module>& modules) {
    for (const auto& name : config_.modules_to_save) {
      if (adapter::may_be_absent(config_, name) || (scores_ && name == "score")) continue;
      const adapter::AdapterConfig one{.modules_to_save = {name}};
      const bool known = std::ranges::any_of(
          modules, [&](const auto& module) { return is_saved_whole(one, module.name); });
      if (!known) unknown_.push_back(fmt::format("'{}' of modules_to_save", name));
    }
  }

  // By rows of a larger vocabulary.
  bool may_grow(const std::string& name) const {
    return name == kHeadName || name == base_.embedding_name();
  }

  // `original` is the base's tensor; its type stays.
  void add_job(const std::string& name, const StoredTensor& original, const Change& change) {
    const auto& shape = original.tensor->shape;
    const auto* source = change.replaced  ? change.replaced
                         : change.rebased ? change.rebased
                                          : &original;
    auto wanted = shape;
    const auto& found = source->tensor->shape;
    if (may_grow(name) && found.size() == 2 && wanted.size() == 2) {
      wanted[0] = std::max(wanted[0], found[0]);
    }
    if (found != wanted) {
      wrong_.push_back(fmt::format("{} is {}, in the base {}", name, shown(found), shown(shape)));
      return;
    }
    const auto dtype = original.tensor->dtype;
    check_convertible(name, source->tensor->dtype, dtype);
    TensorJob job{.entry = {name, dtype, found}, .source = source, .lora = change.lora};
    job.adapted = source != &original || change.lora != nullptr;
    if (job.lora != nullptr) add_lora(job);
    plan_.jobs.push_back(std::move(job));
  }

  void add_lora(TensorJob& job) {
    const auto& lora = *job.lora;
    const auto& name = job.entry.name;
    if (!has_float_values(job.entry.dtype) || job.entry.dtype == DType::kF64) {
      throw UserError(
          fmt::format("'{}' is {}: merging adds in float32; `skein export --dtype "
                      "float32` converts the base",
                      name, dtype_word(job.entry.dtype)));
    }
    job.transposed = lora.is_embedding || (base_.has_transposed_layers() && name != kHeadName);
    job.scale = strengths_.scale_of(lora.module);
    const auto rank = static_cast<uint64_t>(strengths_.rank_of(lora.module));
    const auto& shape = job.entry.shape;
    if (shape.size() != 2) {
      wrong_.push_back(fmt::format("{} is {}, no matrix", name, shown(shape)));
      return;
    }
    const Shape a = {rank, shape[job.transposed ? 0 : 1]},
                b = {shape[job.transposed ? 1 : 0], rank};
    expect(*lora.a, a);
    expect(*lora.b, b);
    if (lora.magnitude != nullptr) expect(*lora.magnitude, {b[0]});
  }

  void expect(const StoredTensor& stored, const Shape& shape) {
    const auto& tensor = *stored.tensor;
    check_convertible(tensor.name, tensor.dtype, DType::kF32);
    if (tensor.shape == shape) return;
    wrong_.push_back(
        fmt::format("{} is {}, expected {}", tensor.name, shown(tensor.shape), shown(shape)));
  }

  // The adapter's own, of the type of the base's embedding; or that of a base that scores already.
  void add_score() {
    plan_.config.scores = true;
    if (score_ == nullptr) {
      if (!base_.files.tensors.contains(plan::kScoreName)) missing_.emplace_back("score");
      return;
    }
    const auto& tensor = *score_->tensor;
    const auto like = base_.files.tensors.find(base_.embedding_name());
    const auto dtype =
        like == base_.files.tensors.end() ? tensor.dtype : like->second.tensor->dtype;
    check_convertible(plan::kScoreName, tensor.dtype, dtype);
    TensorJob job{.entry = {plan::kScoreName, dtype, tensor.shape}, .source = score_};
    job.adapted = true;
    plan_.jobs.push_back(std::move(job));
  }

  void settle_tied_head() {
    const auto name = base_.embedding_name();
    const auto& head = changes_[kHeadName];
    const auto& embedding = changes_[name];
    const bool head_changes = head.replaced || head.lora;
    const bool embedding_changes = embedding.replaced || embedding.lora;
    if (!head_changes && !embedding_changes) return;
    if (head.replaced && embedding.replaced && !head.lora && !embedding.lora &&
        same_tensor(*head.replaced, *embedding.replaced)) {
      return;
    }
    if (config_.ensure_weight_tying && !head_changes) return;
    if (config_.ensure_weight_tying) {
      throw UserError("ensure_weight_tying with two different changes of one tied weight");
    }
    if (name.empty()) throw UserError("the base has a tied head, and no embedding is known in it");
    auto own = head;
    if (!own.rebased) own.rebased = embedding.rebased;
    add_job(kHeadName, base_.files.tensors.at(name), own);
    plan_.config.untie_head = true;
  }

  void note_vocabulary() {
    const auto embedding = base_.embedding_name();
    const auto rows_of = [&](const std::string& name) -> std::optional<uint64_t> {
      const auto job =
          std::ranges::find(plan_.jobs, name, [](auto& one) { return one.entry.name; });
      if (job == plan_.jobs.end() || job->entry.shape.empty()) return std::nullopt;
      return job->entry.shape[0];
    };
    const auto rows = rows_of(embedding), head_rows = rows_of(kHeadName);
    if (!rows) return;
    if (head_rows && *head_rows != *rows) {
      wrong_.push_back(
          fmt::format("{} has {} rows, {} has {}", embedding, *rows, kHeadName, *head_rows));
    }
    if (*rows != base_.files.tensors.at(embedding).tensor->shape[0]) {
      plan_.config.vocab_size = rows;
    }
  }

  void refuse_problems() {
    const auto text =
        list("not in the base", unknown_) +
        list("without their partner (lora_A, lora_B, and DoRA's magnitude)", incomplete_) +
        list("missing in the adapter", missing_) + list("under two names", twice_) +
        list("of another shape", wrong_) + list("not among target_modules", untargeted_);
    if (text.empty()) return;
    throw UserError(
        fmt::format("the adapter's tensors in {} do not fit the base {} and {}; is it the right "
                    "base?{}",
                    adapter_.folder.string(), base_.folder.string(), adapter::kConfigName, text));
  }

  static std::string list(std::string_view title, std::vector<std::string>& names) {
    if (names.empty()) return "";
    std::ranges::sort(names);
    const size_t shown = std::min<size_t>(names.size(), 10);
    return fmt::format(
        "\n  {} ({}): {}{}", title, names.size(),
        fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
        names.size() > shown ? ", …" : "");
  }

  const BaseModel& base_;
  const checkpoint::ModelFiles& adapter_;
  const adapter::AdapterConfig& config_;
  adapter::Strengths strengths_;
  bool scores_;                            // a head that scores takes the place of the base's
  const StoredTensor* score_ = nullptr;    // the adapter's
  std::map<std::string, Change> changes_;  // by the base's name
  MergePlan plan_;
  std::vector<std::string> unknown_, incomplete_, missing_, twice_, wrong_, untargeted_;
};

}  // namespace

MergePlan plan_merge(const BaseModel& base, const checkpoint::ModelFiles& adapter,
                     const adapter::AdapterConfig& config) {
  return Planner(base, adapter, config).plan();
}

}  // namespace skein::convert
