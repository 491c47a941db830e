// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "skein/cli/generate_flags.h"
#include "skein/cli/load_model.h"
#include "skein/cli/text_ends.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/progress.h"
#include "skein/rollout/generate.h"
#include "skein/text/parts/unicode.h"
#include "skein/text/text_codec.h"
#include "skein/text/text_stream.h"

namespace skein::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using rollout::Finish;

std::vector<rollout::Request> requests_of(const GenerateFlags& flags,
                                          const text::TextCodec& codec) {
  std::vector<rollout::Request> requests;
  for (size_t prompt = 0; prompt < flags.prompts.size(); ++prompt) {
    if (!codec.is_bytes())
      text::require_utf8(flags.prompts[prompt], fmt::format("prompt {}", prompt + 1));
    const auto ids = codec.encode_prompt(flags.prompts[prompt]);
    const std::vector<int64_t> tokens(ids.begin(), ids.end());
    for (int64_t text = 0; text < flags.num_return; ++text) {
      // A text stays the same when further prompts or texts are asked for.
      requests.push_back({tokens, prompt, static_cast<uint64_t>(text)});
    }
  }
  return requests;
}

void show(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// The texts as they grow.
class Texts {
 public:
  Texts(size_t count, const text::TextCodec& codec, const GenerateFlags& flags)
      : codec_(codec),
        streams_(count, text::TextStream(flags.stops)),
        texts_(count),
        shown_(flags.stream && !flags.json && count == 1) {}

  bool is_shown() const { return shown_; }
  const std::string& operator[](size_t index) const { return texts_[index]; }

  // False once a stop string has come.
  bool add(size_t index, int64_t token) {
    append(index, streams_[index].add(codec_.bytes_of(static_cast<uint32_t>(token))));
    return !streams_[index].is_stopped();
  }
  void finish() {
    for (size_t i = 0; i < streams_.size(); ++i) append(i, streams_[i].finish());
    if (shown_) show("\n");
  }

 private:
  void append(size_t index, const std::string& piece) {
    texts_[index] += piece;
    if (shown_) show(piece);
  }

  const text::TextCodec& codec_;
  std::vector<text::TextStream> streams_;
  std::vector<std::string> texts_;
  bool shown_;
};

void print_results(const GenerateFlags& flags, const std::vector<rollout::Request>& requests,
                   const std::vector<rollout::Continuation>& results, const Texts& texts) {
  for (size_t i = 0; i < results.size(); ++i) {
    const auto per_prompt = static_cast<size_t>(flags.num_return);
    const auto& prompt = flags.prompts[i / per_prompt];
    if (flags.json) {
      const Json object{{"prompt", prompt},
                        {"text", texts[i]},
                        {"finish_reason", rollout::finish_reason(results[i].finish)},
                        {"num_prompt_tokens", requests[i].prompt.size()},
                        {"num_new_tokens", results[i].tokens.size()},
                        {"tokens", results[i].tokens},
                        {"prompt_index", i / per_prompt},
                        {"text_index", i % per_prompt}};
      fmt::print("{}\n", object.dump(-1, ' ', false, Json::error_handler_t::replace));
    } else if (results.size() == 1) {
      fmt::print("{}\n", texts[i]);
    } else {
      const auto line = std::string_view(prompt).substr(0, prompt.find('\n'));
      fmt::print("--- {}: {}\n{}\n", i + 1, line, texts[i]);
    }
  }
}

void print_notes(const std::vector<rollout::Continuation>& results, const model::Model& model,
                 Clock::duration duration) {
  size_t tokens = 0;
  for (const auto& result : results) tokens += result.tokens.size();
  const auto seconds = std::chrono::duration<double>(duration).count();
  log_info("generated {} tokens in {:.1f} s ({:.0f} tokens/s)", tokens, seconds,
           static_cast<double>(tokens) / std::max(seconds, 1e-9));
  const auto cut = std::ranges::count(results, Finish::kPositions, &rollout::Continuation::finish);
  if (cut == 0) return;
  log_info(
      "note: {} of {} texts end because the model knows {} positions, prompt and text together",
      cut, results.size(), model.max_positions());
}

}  // namespace

int run_generate_command(std::span<const std::string> arguments) {
  if (std::ranges::any_of(arguments, [](const auto& w) { return w == "--help" || w == "-h"; })) {
    fmt::print("{}", kGenerateUsage);
    return static_cast<int>(ExitCode::kDone);
  }
  const auto flags = parse_generate_flags(arguments);
  const auto folder = plan::open_model_folder({flags.model, flags.adapter, flags.base});
  const auto wishes = rollout::read_generation_config(folder.parts());
  const auto texts_folder = folder.tokenizer_folder();
  const auto codec = text::open_codec(texts_folder);
  const auto ends = ends_of_text(wishes, *codec);
  rollout::GenerateOptions options{
      .sampling = sampling_of(flags, wishes),
      .max_new_tokens = flags.max_new_tokens.value_or(wishes.max_new_tokens.value_or(128)),
      .stop_tokens = ends.tokens,
      .max_rows = flags.batch_size};
  const auto requests = requests_of(flags, *codec);

  const auto device = device_of(flags.device);
  const c10::DeviceGuard guard(device);
  const auto model = load_model(folder, flags.dtype, device);
  if (codec->is_bytes()) {
    log_info("{} has no tokenizer.json: tokens are bytes", texts_folder.string());
  }

  Texts texts(requests.size(), *codec, flags);
  const auto most = requests.size() * static_cast<size_t>(options.max_new_tokens);
  auto progress = std::make_unique<Progress>(fmt::format("generating {} texts", requests.size()),
                                             most, "tokens at most");
  options.on_token = [&](size_t request, int64_t token) {
    if (!texts.is_shown()) progress->add(1);
    return ends.holds(token) || texts.add(request, token);
  };
  tensor::PlainUnits units;
  const auto begin = Clock::now();
  const auto results = rollout::generate(*model, units, device, requests, options);
  progress.reset();  // its line makes room for the texts
  texts.finish();
  if (!texts.is_shown()) print_results(flags, requests, results, texts);
  std::fflush(stdout);
  print_notes(results, *model, Clock::now() - begin);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace skein::cli
