// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/inspect.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/data/block_source.h"
#include "skein/data/prepare.h"
#include "skein/data/sample_plan.h"
#include "skein/tensor/host_batch.h"
#include "skein/text/parts/unicode.h"

namespace skein::data {
namespace {

bool evaluates(const config::RunConfig& config) {
  return config.eval.eval_strategy != config::EvalStrategy::kNo;
}

uint64_t seed_of(const config::RunConfig& config) {
  return static_cast<uint64_t>(config.data_seed.value_or(config.seed));
}

// The tokens and samples of one split.
struct View {
  const PreparedData& data;
  BlockSource source;
  SampleSet samples;
};

View view_of(const RunData& data, const config::RunConfig& config, Split split) {
  const auto& prepared = split == Split::kEval && data.eval ? *data.eval : data.train;
  const double held_out = held_out_percentage(config.data, evaluates(config));
  if (split == Split::kEval && !data.eval && held_out == 0) {
    throw UserError(
        "this configuration has no evaluation data: give eval_file, validation_file_dir or "
        "validation_split_percentage");
  }
  const BlockSource source(prepared.tokens, config.data.block_size);
  return {prepared, source,
          samples_of(config.data, source.count(), split, held_out, seed_of(config))};
}

std::string describe_split(const View& view, Split split, int64_t block_size) {
  const auto& data = view.data;
  auto text = fmt::format("{:5}  {} tokens", split_name(split), data.tokens.size());
  if (data.documents) text += fmt::format(" in {} documents", *data.documents);
  text += " of " + counted(data.files.size(), "file");
  if (data.bad_lines > 0) text += fmt::format(", {} bad lines left out", data.bad_lines);
  text += fmt::format("\n       {} of {} blocks of {} tokens\n", view.samples.count(),
                      view.source.count(), block_size);
  return text + fmt::format("       {}\n", data.prepared_file.empty()
                                               ? "used where it is: " + data.files[0].string()
                                               : data.prepared_file.string());
}

// Printable, whatever the bytes.
std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto valid = text.substr(0, text::valid_utf8_prefix(text));
    for (const char c : valid) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '\n') {
        out += "\n  ";
      } else if (byte < 0x20 || byte == 0x7F) {
        out += fmt::format("\\x{:02X}", byte);
      } else {
        out += c;
      }
    }
    text.remove_prefix(valid.size());
    if (text.empty()) break;
    out += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[0]));
    text.remove_prefix(1);
  }
  return out;
}

std::string row_text(const View& view, const text::TextCodec& codec, int64_t sample, Marks marks) {
  const auto decode = [&](std::span<const uint32_t> ids) {
    if (view.data.kind == SourceKind::kText || !codec.is_bytes()) return codec.decode(ids);
    return fmt::format("{}", fmt::join(ids, " "));  // ids of a tokenizer that is not given
  };
  return sample_text(view.source, sample, decode, marks);
}

std::string marked(const std::string& text, bool is_trained, Marks marks) {
  if (marks == Marks::kColour) return is_trained ? "\x1b[32m" + text + "\x1b[0m" : text;
  return is_trained ? text : "⟦" + text + "⟧";
}

std::string document_text(std::span<const int64_t> tokens, std::span<const int64_t> targets,
                          const Decode& decode, Marks marks) {
  const auto is_trained = [&](size_t at) { return at > 0 && targets[at - 1] != tensor::kIgnore; };
  std::string text;
  for (size_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
    end = begin + 1;
    while (end < tokens.size() && is_trained(end) == is_trained(begin)) ++end;
    const auto part = tokens.subspan(begin, end - begin);
    const std::vector<uint32_t> ids(part.begin(), part.end());
    text += marked(escaped(decode(ids)), is_trained(begin), marks);
  }
  return text;
}

}  // namespace

std::string describe(const RunData& data, const config::RunConfig& config) {
  const auto train = view_of(data, config, Split::kTrain);
  auto text = describe_split(train, Split::kTrain, config.data.block_size);
  if (data.eval || held_out_percentage(config.data, evaluates(config)) > 0) {
    text +=
        describe_split(view_of(data, config, Split::kEval), Split::kEval, config.data.block_size);
  }
  return text;
}

std::string inspect(const config::RunConfig& config, const InspectOptions& options) {
  const auto codec = text::open_codec(config.model);
  const auto data = prepare_run(config);
  const auto view = view_of(data, config, options.split);
  const int64_t rows = std::min(options.rows, view.samples.count());
  std::string text;
  if (options.split == Split::kTrain) {
    const SamplePlan plan(view.samples, {.global_batch = 1, .seed = seed_of(config)});
    for (int64_t i = 0; i < rows; ++i) {
      text += row_text(view, *codec, plan.step_plan(i).samples[0], options.marks);
    }
  } else {
    for (int64_t i = 0; i < rows; ++i) {
      text += row_text(view, *codec, view.samples.sample(i), options.marks);
    }
  }
  return text;
}

std::string sample_text(const SampleSource& source, int64_t sample, const Decode& decode,
                        Marks marks) {
  const auto length = static_cast<size_t>(source.length(sample));
  std::vector<int64_t> tokens(length), targets(length), ends;
  source.read(sample, tokens, targets);
  source.append_ends(sample, ends);
  auto text = fmt::format("sample {}: {} tokens, {} trained on\n", sample, length,
                          source.num_targets(sample));
  size_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto own = static_cast<size_t>(ends[i]) - begin;
    const auto shown = document_text(std::span(tokens).subspan(begin, own),
                                     std::span(targets).subspan(begin, own), decode, marks);
    if (ends.size() == 2) text += i == 0 ? "chosen\n" : "rejected\n";
    text += fmt::format("  {}\n", shown);
    begin += own;
  }
  return text;
}

}  // namespace skein::data
