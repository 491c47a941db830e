// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/run_samples.h"

#include <fmt/format.h>

#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/data/block_source.h"
#include "skein/data/prepare.h"

namespace skein::data {
namespace {

// A source together with the tokens that it reads.
struct PreparedBlocks {
  PreparedBlocks(PreparedData prepared, int64_t block_size)
      : data(std::move(prepared)), source(data.tokens, block_size) {}

  PreparedData data;
  BlockSource source;
};

std::shared_ptr<const PreparedBlocks> open_split(const RunSamplesOptions& options,
                                                 const text::TextCodec& codec, Split split) {
  auto data = prepare(options.data, codec, split);
  if (data.kind == SourceKind::kText) require_vocabulary(codec, options.vocab_size);
  require_vocabulary(data.files, data.tokens, data.largest_token, options.vocab_size);
  return std::make_shared<const PreparedBlocks>(std::move(data), options.data.block_size);
}

}  // namespace

void require_vocabulary(const text::TextCodec& codec, int64_t vocab_size) {
  if (codec.vocab_size() <= vocab_size) return;
  throw UserError(
      fmt::format("the model's vocab_size is {}, but the text is read with {} ids ({}); give a "
                  "tokenizer_name_or_path that fits the model, resize_vocab=true, or a model with "
                  "vocab_size {}",
                  vocab_size, codec.vocab_size(), codec.identity(), codec.vocab_size()));
}

void require_vocabulary(const std::vector<fs::path>& files, const TokenArray& tokens,
                        uint64_t largest_token, int64_t vocab_size) {
  if (static_cast<int64_t>(largest_token) < vocab_size) return;
  const int64_t first = tokens.first_outside(vocab_size);
  throw UserError(
      fmt::format("{}{}: token {} has id {}, but the model's vocab_size is {}; was the file made "
                  "with another tokenizer?",
                  files[0].string(), files.size() > 1 ? " and the files after it" : "", first,
                  tokens.read(first, 1)[0], vocab_size));
}

RunSamples open_blocks(const RunSamplesOptions& asked) {
  auto options = asked;
  options.data.overwrite_cache = false;  // see prepare_run()
  const auto codec = text::open_codec(options.model);
  const double held_out = held_out_percentage(options.data, options.evaluates);
  const auto choose = [&](const std::shared_ptr<const PreparedBlocks>& blocks, Split split) {
    return ChosenSamples{
        .source = {blocks, &blocks->source},
        .set = samples_of(options.data, blocks->source.count(), split, held_out, options.seed)};
  };
  const auto train = open_split(options, *codec, Split::kTrain);
  RunSamples samples{.train = choose(train, Split::kTrain)};
  if (options.evaluates) {
    const bool has_own = has_eval_sources(options.data);
    samples.eval =
        choose(has_own ? open_split(options, *codec, Split::kEval) : train, Split::kEval);
  }
  samples.digest = digest(fmt::format(
      "data {} block_size {} held_out {} samples {}{}", train->data.digest, options.data.block_size,
      held_out, samples.train.set.count(), options.data.dataloader_drop_last ? " drop_last" : ""));
  return samples;
}

SamplePlan plan_of(const RunSamples& samples, const SampleOrder& order) {
  const auto& set = samples.train.set;
  return samples.packs ? SamplePlan(set.count(), samples.packs, order) : SamplePlan(set, order);
}

}  // namespace skein::data
