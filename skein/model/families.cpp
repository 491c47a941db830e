// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/families.h"

#include "skein/model/gpt2.h"
#include "skein/model/llama.h"

namespace skein::model {
namespace {

constexpr Family kFamilies[] = {
    {"llama", make_llama},
    {"gpt2", make_gpt2},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace skein::model
