// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <set>

#include "skein/config/deepspeed.h"
#include "skein/config/field_index.h"
#include "skein/config/known_keys.h"
#include "skein/config/standins.h"
#include "skein/config/suggest.h"
#include "skein/config/values.h"
#include "skein/config/yaml_reader.h"
#include "skein/core/error.h"

namespace skein::config {
namespace {

// Settings by canonical key. A setting keeps the spelling it was given in.
using Layer = std::map<std::string, Setting>;
using Notes = std::vector<std::string>;

[[noreturn]] void refuse_unknown(const Setting& setting) {
  const auto section = setting.key.substr(0, setting.key.find('.'));
  if (field_index().canonical.contains(section)) {
    refuse(setting.origin, fmt::format("'{}' takes a value, not a section", section));
  }
  auto candidates = standin_names();
  for (const auto& [spelling, name] : field_index().canonical) candidates.push_back(spelling);
  refuse(setting.origin,
         fmt::format("unknown key '{}'{}", setting.key, did_you_mean(setting.key, candidates)));
}

[[noreturn]] void refuse_second(const std::string& key, const Setting& first,
                                const Setting& second) {
  if (first.key == second.key) {
    refuse(second.origin,
           fmt::format("'{}' is given twice: also at {}", key, first.origin.place()));
  }
  refuse(second.origin, fmt::format("'{}' contradicts '{}' ({}): both say what '{}' is; keep one",
                                    second.key, first.key, first.origin.place(), key));
}

// Several stand-ins may say the same thing (`bf16: true`, `mixed_precision: bf16`); `auto` yields.
bool agree(Setting& first, const Setting& second) {
  if (first.value.text == "auto") first = second;
  return second.value.text == "auto" || first.value.text == second.value.text;
}

class LayerBuilder {
 public:
  explicit LayerBuilder(Notes& notes) : notes_(notes) {}

  Layer build(const std::vector<Setting>& settings) {
    for (const auto& setting : settings) add(setting);
    return std::move(layer_);
  }

 private:
  void add(const Setting& setting) {
    const auto& spellings = field_index().canonical;
    if (const auto found = spellings.find(setting.key); found != spellings.end()) {
      insert(found->second, setting, false);
    } else if (is_standin(setting.key)) {
      auto resolved = resolve_standin(setting, notes_);
      if (!resolved) return;
      const auto key = resolved->key;
      resolved->key = setting.key;
      insert(key, *resolved, true);
    } else if (const auto* known = find_known_key(setting.key)) {
      auto note = check_known_key(*known, setting);
      if (!note.empty()) notes_.push_back(std::move(note));
    } else {
      refuse_unknown(setting);
    }
  }

  void insert(const std::string& key, Setting setting, bool is_derived) {
    if (setting.key != key) setting.origin.spelling = setting.key;
    const auto [place, is_new] = layer_.emplace(key, setting);
    if (is_new) {
      if (is_derived) derived_.insert(key);
      return;
    }
    const bool may_agree = is_derived && derived_.contains(key) && key != kDeepSpeedKey;
    if (may_agree && agree(place->second, setting)) return;
    refuse_second(key, place->second, setting);
  }

  Notes& notes_;
  Layer layer_;
  std::set<std::string> derived_;
};

// `distributed_strategy: deepspeed` leaves the choice to the DeepSpeed file.
bool says_deepspeed(const std::string& key, const Setting& setting) {
  return key == "distributed_strategy" && lower(setting.value.text) == "deepspeed";
}

void put_over(Layer& below, Layer above, int layer = 0) {
  for (auto& [key, setting] : above) {
    setting.layer = layer;
    below.insert_or_assign(key, std::move(setting));
  }
}

// A wrong value is refused even where a higher layer would hide it.
void check_values(const Layer& layer) {
  RunConfig().fields([&](const std::string& name, auto& member, const About& about) {
    const auto found = layer.find(name);
    if (found == layer.end() || says_deepspeed(name, found->second)) return;
    assign(found->second, about, member);
  });
}

// The files' settings and the command line's over them.
Layer read_explicit(const Arguments& arguments, Notes& notes) {
  std::vector<std::vector<Setting>> sources;
  if (arguments.config) sources = read_config_files(*arguments.config);
  sources.push_back(arguments.overrides);
  Layer explicit_layer;
  int number = 0;
  for (const auto& settings : sources) {
    auto layer = LayerBuilder(notes).build(settings);
    check_values(layer);
    put_over(explicit_layer, std::move(layer), number++);
  }
  return explicit_layer;
}

// An explicit null is as good as nothing, except that it hides what a parent file says.
void drop_absent_batch_sizes(Layer& explicit_layer) {
  for (const auto* key : {"per_device_train_batch_size", "gradient_accumulation_steps",
                          "global_batch_size", "batch_size"}) {
    const auto found = explicit_layer.find(key);
    if (found != explicit_layer.end() && is_absent(found->second.value))
      explicit_layer.erase(found);
  }
}

// The bare batch size is the global one when it stands alone, and per device when accumulation is
// given beside it: in the same place or in one that it overrides. Otherwise accumulation on the
// command line would turn a file's global batch into a per-device one.
void read_bare_batch_size(Layer& explicit_layer, Notes& notes) {
  auto bare = explicit_layer.extract("batch_size");
  if (bare.empty()) return;
  auto& setting = bare.mapped();
  const auto steps = explicit_layer.find("gradient_accumulation_steps");
  const bool per_device = steps != explicit_layer.end() && steps->second.layer <= setting.layer;
  const std::string key = per_device ? "per_device_train_batch_size" : "global_batch_size";
  const auto reading = per_device ? "per device, since accumulation is given beside it"
                                  : "the global batch, since accumulation is not given beside it";
  const auto twin = explicit_layer.find(key);
  if (twin != explicit_layer.end() && twin->second.layer == setting.layer) {
    refuse(setting.origin,
           fmt::format("'batch_size' is read as {}, but '{}' is given too ({}); keep one", reading,
                       twin->second.key, twin->second.origin.place()));
  }
  if (twin != explicit_layer.end() && twin->second.layer > setting.layer) return;
  notes.push_back(fmt::format("{}: batch_size {} is read as {}", setting.origin.place(),
                              setting.value.shown(), reading));
  setting.origin.spelling =
      fmt::format("batch_size, read as {}", per_device ? "per device" : "global");
  explicit_layer.insert_or_assign(key, std::move(setting));
}

std::optional<std::string> take_text(Layer& layer, std::string_view key) {
  const auto node = layer.extract(std::string(key));
  if (node.empty()) return std::nullopt;
  return node.mapped().value.text;
}

// One line per DeepSpeed value that an explicit key overrides with another value.
std::vector<std::string> overridden(const Layer& explicit_layer, const Layer& deepspeed) {
  std::vector<std::string> lines;
  RunConfig config;
  config.fields([&](const std::string& name, auto& member, const About& about) {
    const auto above = explicit_layer.find(name), below = deepspeed.find(name);
    if (above == explicit_layer.end() || below == deepspeed.end()) return;
    assign(above->second, about, member);
    auto other = member;
    assign(below->second, about, other);
    if (member == other) return;
    lines.push_back(fmt::format("{}: {} ({}) overrides {} ({})", name, to_text(member),
                                above->second.origin.text(), to_text(other),
                                below->second.origin.text()));
  });
  return lines;
}

void drop(Layer& layer, const std::string& key, const std::string& why, Notes& notes) {
  const auto node = layer.extract(key);
  if (node.empty()) return;
  notes.push_back(fmt::format("{}: {} of the DeepSpeed file is dropped: {}",
                              node.mapped().origin.place(), node.mapped().origin.spelling, why));
}

bool differs(const Layer& explicit_layer, const Layer& deepspeed, const std::string& key) {
  const auto above = explicit_layer.find(key), below = deepspeed.find(key);
  if (above == explicit_layer.end() || below == deepspeed.end()) return false;
  return parse_integer(above->second.value.text) != parse_integer(below->second.value.text);
}

// An overridden side of the batch triangle leaves the file's other numbers stale: derive those.
void derive_batch(const Layer& explicit_layer, Layer& deepspeed, Notes& notes) {
  const bool micro = differs(explicit_layer, deepspeed, "per_device_train_batch_size");
  const bool steps = differs(explicit_layer, deepspeed, "gradient_accumulation_steps");
  if (explicit_layer.contains("global_batch_size")) {
    const bool all = explicit_layer.contains("per_device_train_batch_size");
    if (!all && explicit_layer.contains("gradient_accumulation_steps")) {
      drop(deepspeed, "per_device_train_batch_size", "derived from the global batch", notes);
    } else if (differs(explicit_layer, deepspeed, "global_batch_size") || micro) {
      drop(deepspeed, "gradient_accumulation_steps", "derived from the global batch", notes);
    }
  } else if (micro || steps) {
    drop(deepspeed, "global_batch_size", "derived from the overridden numbers", notes);
  }
}

Layer deepspeed_layer(const Setting& named, Notes& notes) {
  auto read = read_deepspeed(named);
  for (auto& note : read.notes) notes.push_back(std::move(note));
  Layer layer;
  for (const auto& setting : read.settings) {
    const auto [place, is_new] = layer.emplace(setting.key, setting);
    if (!is_new) refuse_second(setting.key, place->second, setting);
  }
  return layer;
}

// Puts the DeepSpeed file's settings, if one is named, under the explicit ones. An explicit `auto`
// leaves the choice to the file.
Layer add_deepspeed(Layer explicit_layer, Notes& notes) {
  const bool strict = take_text(explicit_layer, kDeepSpeedConflictKey) == "error";
  auto named = explicit_layer.extract(std::string(kDeepSpeedKey));
  if (!named.empty() && is_null(named.mapped().value)) named = {};
  const auto strategy = explicit_layer.find("distributed_strategy");
  const bool by_file =
      strategy != explicit_layer.end() && says_deepspeed(strategy->first, strategy->second);
  if (by_file && named.empty()) {
    refuse(strategy->second.value.origin,
           "'distributed_strategy: deepspeed' takes the stage from a DeepSpeed file, but none is "
           "given; add deepspeed: FILE.json, or write distributed_strategy: zero2");
  }
  if (by_file) explicit_layer.erase(strategy);
  if (named.empty()) return explicit_layer;
  auto layer = deepspeed_layer(named.mapped(), notes);
  std::erase_if(explicit_layer, [&](const auto& entry) {
    return layer.contains(entry.first) && lower(entry.second.value.text) == "auto";
  });
  const auto conflicts = overridden(explicit_layer, layer);
  if (strict && !conflicts.empty()) {
    throw UserError(fmt::format(
        "the configuration and the DeepSpeed file disagree (deepspeed_conflict: error):\n  {}",
        fmt::join(conflicts, "\n  ")));
  }
  notes.insert(notes.end(), conflicts.begin(), conflicts.end());
  derive_batch(explicit_layer, layer, notes);
  put_over(layer, std::move(explicit_layer));
  return layer;
}

void check_together(const Resolved& resolved) {
  const auto& schedule = resolved.config.schedule;
  if (schedule.warmup_steps > 0 && schedule.warmup_ratio > 0) {
    refuse(resolved.origin_of("warmup_ratio"),
           fmt::format("'warmup_ratio' and 'warmup_steps' ({}) both ask for warm-up; "
                       "keep one, or set the other to 0",
                       resolved.origin_of("warmup_steps").place()));
  }
}

}  // namespace

Origin Resolved::origin_of(const std::string& key) const {
  const auto found = origins.find(key);
  return found == origins.end() ? Origin() : found->second;
}

Resolved load(const Arguments& arguments) {
  Resolved resolved;
  auto explicit_layer = read_explicit(arguments, resolved.notes);
  drop_absent_batch_sizes(explicit_layer);
  read_bare_batch_size(explicit_layer, resolved.notes);
  const auto layer = add_deepspeed(std::move(explicit_layer), resolved.notes);
  resolved.config.fields([&](const std::string& name, auto& member, const About& about) {
    const auto found = layer.find(name);
    if (found == layer.end()) return;
    assign(found->second, about, member);
    resolved.origins[name] = found->second.origin;
  });
  check_together(resolved);
  return resolved;
}

Resolved load(std::span<const std::string> words) { return load(parse_arguments(words)); }

std::string to_yaml(const Resolved& resolved, bool with_origins) {
  std::string text;
  auto config = resolved.config;
  config.fields([&](const std::string& name, auto& member, const About& about) {
    if (!about.saved) return;
    const auto line = fmt::format("{}: {}", name, to_text(member));
    text += with_origins ? fmt::format("{:<44} # {}\n", line, resolved.origin_of(name).text())
                         : line + "\n";
  });
  return text;
}

}  // namespace skein::config
