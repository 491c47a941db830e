// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/families.h"

#include "skein/model/decoder.h"
#include "skein/model/gpt2.h"

namespace skein::model {
namespace {

constexpr Family kFamilies[] = {
    {"llama", make_decoder}, {"mistral", make_decoder}, {"qwen2", make_decoder},
    {"qwen3", make_decoder}, {"gemma2", make_decoder},  {"gemma3_text", make_decoder},
    {"phi3", make_decoder},  {"gpt2", make_gpt2},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace skein::model
