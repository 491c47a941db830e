// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families/families.h"

#include "skein/plan/families/gemma.h"
#include "skein/plan/families/gpt2.h"
#include "skein/plan/families/llama.h"
#include "skein/plan/families/mistral.h"
#include "skein/plan/families/phi3.h"
#include "skein/plan/families/qwen.h"

namespace skein::plan {
namespace {

constexpr Family kFamilies[] = {
    {"llama", read_llama}, {"mistral", read_mistral}, {"qwen2", read_qwen2},
    {"qwen3", read_qwen3}, {"gemma2", read_gemma2},   {"gemma3_text", read_gemma3_text},
    {"phi3", read_phi3},   {"gpt2", read_gpt2},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

std::string family_names() {
  std::string names;
  for (const auto& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.model_type;
  }
  return names;
}

}  // namespace skein::plan
