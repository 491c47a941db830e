// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/prompts.h"

namespace skein::train {

Prompts read_prompts(const data::PromptSource& source, std::span<const int64_t> samples,
                     const text::TextCodec& codec) {
  Prompts prompts{.samples = {samples.begin(), samples.end()}};
  for (const auto sample : samples) {
    std::vector<int64_t> tokens(static_cast<size_t>(source.length(sample)));
    std::vector<int64_t> targets(tokens.size());
    source.read(sample, tokens, targets);
    const std::vector<uint32_t> ids(tokens.begin(), tokens.end());
    prompts.texts.push_back(codec.decode(ids));
    prompts.tokens.push_back(std::move(tokens));
    prompts.rows.push_back(source.row_json(sample));
    prompts.places.push_back(source.place_of(sample));
  }
  return prompts;
}

}  // namespace skein::train
