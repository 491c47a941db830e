// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/tensor_match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_set>

#include "skein/core/error.h"

namespace skein::checkpoint {
namespace {

bool may_be_passed_over(const std::string& name, const LoadOptions& options) {
  if (options.tied_head && name == "lm_head.weight") return true;
  return options.foreign && (name.ends_with("attn.bias") || name.ends_with("attn.masked_bias"));
}

struct Differences {
  std::vector<std::string> missing, unexpected, wrong_shape;
};

std::string shape_text(const auto& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string list_text(std::string_view title, std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const size_t shown = std::min<size_t>(names.size(), 10);
  const auto more = names.size() > shown ? fmt::format(", and {} more", names.size() - shown) : "";
  return fmt::format("\n  {} ({}): {}{}", title, names.size(),
                     fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
                     more);
}

Differences compare(const ModelFiles& files, const LoadOptions& options) {
  Differences found;
  std::unordered_set<const PlacedTensor*> used;
  const auto want = [&](const std::string& name, const auto& shape) {
    const auto* stored = find_tensor(files, name, options.foreign);
    if (stored == nullptr) {
      found.missing.push_back(name);
      return;
    }
    used.insert(stored->tensor);
    if (std::equal(shape.begin(), shape.end(), stored->tensor->shape.begin(),
                   stored->tensor->shape.end(), std::equal_to<uint64_t>())) {
      return;
    }
    found.wrong_shape.push_back(fmt::format("{} is {}, not {}", name,
                                            shape_text(stored->tensor->shape), shape_text(shape)));
  };
  for (const auto& tensor : options.tensors) want(tensor.name, tensor.shape);
  for (const auto& [name, stored] : files.tensors) {
    if (!used.contains(stored.tensor) && !may_be_passed_over(name, options)) {
      found.unexpected.push_back(name);
    }
  }
  return found;
}

// Merging is the way where an adapter fits and only what it holds of the base does not: an
// embedding with more rows, or a head that is the embedding no longer.
std::string merge_advice(const ModelFiles& files, const Differences& found) {
  const auto is_lora = [](const std::string& text) {
    return text.find(".lora_") != std::string::npos;
  };
  const bool fits = found.missing.empty() && std::ranges::none_of(found.unexpected, is_lora) &&
                    std::ranges::none_of(found.wrong_shape, is_lora);
  if (!fits) return "";
  return fmt::format(
      "\n  `skein merge {} --out DIR` makes a model of it, with the weights that it "
      "holds of its base: take DIR",
      files.folder.string());
}

}  // namespace

// Itself, or with the base prefix added or removed.
const StoredTensor* find_tensor(const ModelFiles& files, const std::string& name, bool foreign) {
  const auto get = [&](const std::string& key) -> const StoredTensor* {
    const auto found = files.tensors.find(key);
    return found == files.tensors.end() ? nullptr : &found->second;
  };
  if (const auto* exact = get(name); exact != nullptr || !foreign) return exact;
  // Files of a base model alone leave out the first word of every name ("transformer.", "model.").
  const auto first_word = name.find('.') + 1;  // 0: it has but one
  if (const auto* shorter = first_word > 0 ? get(name.substr(first_word)) : nullptr) return shorter;
  const auto longer = std::ranges::find_if(files.tensors, [&](const auto& entry) {
    return entry.first.substr(entry.first.find('.') + 1) == name;
  });
  return longer == files.tensors.end() ? nullptr : &longer->second;
}

void require_match(const ModelFiles& files, const LoadOptions& options) {
  auto found = compare(files, options);
  const auto text =
      list_text("missing in the files", found.missing) +
      list_text(options.adapter ? "not part of it" : "not part of the model", found.unexpected) +
      list_text("of another shape", found.wrong_shape);
  if (text.empty()) return;
  throw UserError(fmt::format("the tensors in {} are not those of {}:{}", files.folder.string(),
                              options.adapter ? "an adapter of this model as adapter_config.json "
                                                "describes it; is it the right base?"
                                              : "this model; check config.json",
                              text + (options.adapter ? merge_advice(files, found) : "")));
}

}  // namespace skein::checkpoint
