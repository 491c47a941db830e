// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families.h"

#include "skein/plan/gpt2.h"
#include "skein/plan/llama.h"

namespace skein::plan {
namespace {

constexpr Family kFamilies[] = {
    {"llama", read_llama},
    {"gpt2", read_gpt2},
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
