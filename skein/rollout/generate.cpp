// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/generate.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/ops/decode/sampling_kernel.h"
#include "skein/ops/device.h"
#include "skein/plan/cost/cache_page.h"
#include "skein/rollout/page_book.h"
#include "skein/rollout/passes.h"
#include "skein/rollout/text.h"

namespace skein::rollout {
namespace {

constexpr int64_t kPageTokens = model::KvCache::kPageTokens;
constexpr int64_t kMostRowsOnHost = 64, kMostRowsOnGpu = 512;
constexpr int64_t kPassTokensOnHost = 4096, kPassTokensOnGpu = 16384;
constexpr double kShareOfFreeMemory = 0.85;  // the rest is for what a pass computes
constexpr int64_t kPassesPerReport = 8;

void check(const Request& request, size_t number, const model::Model& model) {
  const auto refuse = [&](const std::string& why) {
    throw UserError(fmt::format("prompt {} {}", number + 1, why));
  };
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) refuse("is empty: there is nothing to continue");
  if (length >= model.max_positions()) {
    refuse(fmt::format("has {} tokens and leaves no room: the model knows {} positions", length,
                       model.max_positions()));
  }
  for (const auto token : request.prompt) {
    if (token >= 0 && token < model.vocab_size()) continue;
    refuse(fmt::format(
        "holds token {}, but the model's vocabulary has {}: is the tokenizer another model's?",
        token, model.vocab_size()));
  }
}

Text text_of(size_t number, const Request& request, const GenerateOptions& options,
             const model::Model& model) {
  const auto length = std::ssize(request.prompt);
  const auto left = model.max_positions() - length;
  const auto most = request.max_new_tokens > 0
                        ? std::min(request.max_new_tokens, options.max_new_tokens)
                        : options.max_new_tokens;
  const auto& sampling = options.sampling;
  return {.request = number,
          .key = ops::draw_key(sampling.seed, sampling.step, request.prompt_id),
          .sample = request.sample,
          .tokens = request.prompt,
          .prompt_length = length,
          .room = std::min(most, left),
          .at_the_end = left < most ? Finish::kPositions : Finish::kLength};
}

// How much of a cache do some texts need?
struct Need {
  int64_t rows = 0;
  int64_t pages_per_row = 0;
  int64_t pages = 0;  // all rows at their longest, and one page of nobody
};

Need need_of(std::span<const Text> texts, int64_t most_rows) {
  Need need{.rows = std::min(most_rows, std::ssize(texts))};
  std::vector<int64_t> all;
  for (const auto& text : texts) all.push_back(plan::cache_pages(text.prompt_length + text.room));
  std::ranges::sort(all, std::greater());
  need.pages_per_row = all.front();
  for (int64_t i = 0; i < need.rows; ++i) need.pages += all[static_cast<size_t>(i)];
  ++need.pages;
  return need;
}

// One generation: which texts go into which pass, and what came out of it.
class Run {
 public:
  Run(Passes& passes, std::span<const Request> requests, const GenerateOptions& options);
  ~Run() { passes_.cache().release(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  std::vector<Continuation> results();

 private:
  // Texts that are read together: leaders whole, or one leader piece by piece; followers continue
  // the prompt of the leader before them.
  struct Reading {
    std::vector<Text*> texts;
    std::vector<int64_t> owners;  // which leader each text follows, itself for a leader
    std::vector<Text*> leaders;
    int64_t tokens = 0;  // of leaders
    int64_t done = 0;    // of a single leader
  };
  // Drawn tokens that the host has not seen.
  struct Pending {
    std::vector<Text*> texts;
    OnTheWay numbers;
  };

  void open_cache(const Need& need);
  bool is_abandoned() const { return options_.is_abandoned && options_.is_abandoned(); }
  bool goes_on(bool has_work) const {
    return options_.goes_on ? options_.goes_on(has_work) : has_work;
  }

  void drop_rows();
  void admit();
  bool admit(Text& text);
  bool follows(const Text& text) const;
  int64_t num_growing() const;
  int64_t first_pages(const Text& text) const;
  void read();
  void give_followers_their_pages();
  void step();
  bool has_pages_for_all();
  void make_room();
  void begin_anew(Text& text);
  void abandon();

  void wait_for(OnTheWay numbers, std::vector<Text*> texts);
  void collect(size_t left);
  void take(Text& text, int64_t token, double log_prob);
  void report();

  Passes& passes_;
  const model::Model& model_;
  const GenerateOptions& options_;
  std::vector<Text> texts_;
  std::vector<Continuation> results_;
  PageBook book_{0};
  int64_t most_rows_ = 0, pass_tokens_ = 0;
  size_t lag_ = 0;  // passes that a GPU has before it when the host reads results
  std::deque<Text*> waiting_;
  Reading reading_;
  std::vector<Text*> rows_;
  std::deque<Pending> pending_;
  int64_t num_tokens_ = 0, num_ended_ = 0, num_passes_ = 0;
};

Run::Run(Passes& passes, std::span<const Request> requests, const GenerateOptions& options)
    : passes_(passes), model_(passes.model()), options_(options), results_(requests.size()) {
  const bool cuda = passes.is_cuda();
  for (size_t i = 0; i < requests.size(); ++i) {
    check(requests[i], i, model_);
    texts_.push_back(text_of(i, requests[i], options, model_));
  }
  for (auto& text : texts_) waiting_.push_back(&text);
  const auto at_once = cuda ? kMostRowsOnGpu : kMostRowsOnHost;
  most_rows_ = options.max_rows > 0 ? options.max_rows : at_once;
  const auto tokens = cuda ? kPassTokensOnGpu : kPassTokensOnHost;
  pass_tokens_ = options.pass_tokens > 0 ? options.pass_tokens : tokens;
  // What a text is worth decides whether it begins anew, so it has to be known at once.
  lag_ = cuda && !model_.turns_by_length() ? 1 : 0;
  open_cache(texts_.empty() ? Need{.rows = 1, .pages_per_row = 1, .pages = 2}
                            : need_of(texts_, most_rows_));
}

void Run::open_cache(const Need& need) {
  auto& cache = passes_.cache();
  int64_t bytes = options_.cache_bytes;
  if (bytes == 0 && passes_.is_cuda()) {
    bytes =
        static_cast<int64_t>(kShareOfFreeMemory * static_cast<double>(ops::free_device_memory()));
  }
  auto pages = need.pages;
  if (bytes > 0) pages = std::min(pages, bytes / cache.page_bytes());
  const auto least = need.pages_per_row + 1;
  if (pages < least) {
    throw UserError(fmt::format(
        "the cache of keys and values has {}, and a text of {} tokens needs {}: give it more "
        "(rollout_cache_size), or let texts be shorter (max_completion_length, --max-new-tokens)",
        shown_bytes(static_cast<uint64_t>(bytes)), need.pages_per_row * kPageTokens,
        shown_bytes(static_cast<uint64_t>(least * cache.page_bytes()))));
  }
  cache.reserve(pages);
  book_ = PageBook(pages);
  passes_.begin({.sampling = options_.sampling,
                 .rows = need.rows,
                 .pages_per_row = need.pages_per_row,
                 .records = options_.may_record && !options_.goes_on});
}

std::vector<Continuation> Run::results() {
  while (true) {
    collect(lag_);
    if (is_abandoned()) abandon();
    drop_rows();
    if (reading_.texts.empty()) admit();
    const bool reads = !reading_.texts.empty();
    if (!goes_on(reads || !rows_.empty())) break;
    if (reads) {
      read();
    } else if (!rows_.empty()) {
      step();
    } else {
      passes_.idle();
    }
    report();
  }
  collect(0);
  return std::move(results_);
}

void Run::abandon() {
  pending_.clear();
  waiting_.clear();
  reading_ = {};
  for (auto* text : rows_) text->ended = true;
}

void Run::report() {
  if (options_.on_progress && ++num_passes_ % kPassesPerReport == 0) {
    options_.on_progress(num_tokens_, num_ended_);
  }
}

// Texts that have ended, or are as long as they may be, leave.
void Run::drop_rows() {
  std::vector<int64_t> places;
  std::vector<Text*> kept;
  for (size_t i = 0; i < rows_.size(); ++i) {
    auto& text = *rows_[i];
    if (text.goes_on() && !model_.outgrows(text.length() - 1, text.length())) {
      places.push_back(static_cast<int64_t>(i));
      kept.push_back(&text);
    } else if (text.goes_on()) {
      begin_anew(text);
    } else {
      book_.give_back(text.pages);
    }
  }
  if (kept.size() == rows_.size()) return;
  passes_.keep(places);
  rows_ = std::move(kept);
}

// It is read again, with what was drawn, before those that have not begun.
void Run::begin_anew(Text& text) {
  book_.give_back(text.pages);
  waiting_.push_front(&text);
}

void Run::admit() {
  reading_ = {};
  while (!waiting_.empty() && admit(*waiting_.front())) waiting_.pop_front();
}

bool Run::follows(const Text& text) const {
  if (reading_.leaders.empty()) return false;
  const auto& leader = *reading_.leaders.back();
  return text.drawn == 0 && leader.drawn == 0 && text.tokens == leader.tokens;
}

// Texts that will ask for a further page.
int64_t Run::num_growing() const {
  const auto grows = [](const Text* text) {
    return std::ssize(text->pages) < plan::cache_pages(text->prompt_length + text->room);
  };
  return std::ranges::count_if(rows_, grows) + std::ranges::count_if(reading_.texts, grows);
}

// What was turned by the length that a text had cannot be read again: such a text never gives way.
int64_t Run::first_pages(const Text& text) const {
  const auto at_once = model_.turns_by_length() ? text.prompt_length + text.room : text.length();
  return plan::cache_pages(at_once);
}

// Not before each that goes on can have a page more: it should not have to give way at once.
bool Run::admit(Text& text) {
  const auto rows = std::ssize(rows_) + std::ssize(reading_.texts);
  if (rows >= most_rows_) return false;
  const bool follows = this->follows(text);
  const bool is_first = reading_.texts.empty();
  if (!follows && !is_first &&
      (reading_.tokens + text.length() > pass_tokens_ || model_.turns_by_length())) {
    return false;
  }
  const auto shared = follows ? text.length() / kPageTokens : 0;
  const auto pages = first_pages(text);
  if (book_.num_free() < pages - shared + num_growing()) return false;
  if (follows) {
    const auto& leader = reading_.leaders.back()->pages;
    text.pages = book_.share(std::span(leader).first(static_cast<size_t>(shared)));
  } else {
    reading_.leaders.push_back(&text);
    reading_.tokens += text.length();
  }
  book_.extend(text.pages, pages);
  reading_.texts.push_back(&text);
  reading_.owners.push_back(std::ssize(reading_.leaders) - 1);
  return true;
}

void Run::read() {
  std::vector<Passes::Piece> pieces;
  for (const auto* leader : reading_.leaders) pieces.push_back({leader, 0, leader->length()});
  if (pieces.size() == 1) {
    auto& piece = pieces.front();
    piece.from = reading_.done;
    piece.to = std::min(piece.to, piece.from + pass_tokens_);
    reading_.done = piece.to;
    if (piece.to < piece.text->length()) {
      passes_.read(pieces);
      return;
    }
  }
  const auto hidden = passes_.read(pieces);
  give_followers_their_pages();
  auto done = std::exchange(reading_, {});
  auto numbers = passes_.join(std::ssize(rows_), done.texts, hidden, done.owners);
  rows_.insert(rows_.end(), done.texts.begin(), done.texts.end());
  wait_for(std::move(numbers), std::move(done.texts));
}

void Run::give_followers_their_pages() {
  std::vector<int64_t> from, to;
  for (size_t i = 0; i < reading_.texts.size(); ++i) {
    const auto& text = *reading_.texts[i];
    const auto& leader = *reading_.leaders[static_cast<size_t>(reading_.owners[i])];
    if (&text == &leader || text.length() % kPageTokens == 0) continue;
    const auto last = static_cast<size_t>(text.length() / kPageTokens);
    from.push_back(leader.pages[last]);
    to.push_back(text.pages[last]);
  }
  passes_.copy_pages(from, to);
}

bool Run::has_pages_for_all() {
  return std::ranges::all_of(rows_, [&](Text* text) {
    return book_.extend(text->pages, plan::cache_pages(text->length()));
  });
}

// Those that have joined last give way; what they drew is kept.
void Run::make_room() {
  collect(0);
  drop_rows();
  while (!has_pages_for_all()) {
    SKEIN_CHECK(rows_.size() > 1, "the cache holds any one text");
    begin_anew(*rows_.back());
    rows_.pop_back();
  }
}

void Run::step() {
  if (!has_pages_for_all()) make_room();
  if (rows_.empty()) return passes_.idle();  // the pass was announced
  auto numbers = passes_.step(rows_);
  wait_for(std::move(numbers), rows_);
}

void Run::wait_for(OnTheWay numbers, std::vector<Text*> texts) {
  for (auto* text : texts) ++text->drawn;
  pending_.push_back({std::move(texts), std::move(numbers)});
}

void Run::collect(size_t left) {
  while (pending_.size() > left) {
    const auto [texts, numbers] = std::move(pending_.front());
    pending_.pop_front();
    if (numbers.arrived) numbers.arrived->synchronize();
    const auto* tokens = numbers.tokens.const_data_ptr<int64_t>();
    const auto* log_probs = numbers.log_probs.const_data_ptr<double>();
    for (size_t i = 0; i < texts.size(); ++i) {
      if (!texts[i]->ended) take(*texts[i], tokens[i], log_probs[i]);
    }
  }
}

void Run::take(Text& text, int64_t token, double log_prob) {
  if (std::isnan(log_prob)) {
    throw UserError(
        "the model's logits are not finite: its weights hold NaN or infinite values, or are too "
        "large for the dtype");
  }
  auto& result = results_[text.request];
  text.tokens.push_back(token);
  result.tokens.push_back(token);
  if (options_.log_probs) result.log_probs.push_back(log_prob);
  ++num_tokens_;
  const bool goes_on = !options_.on_token || options_.on_token(text.request, token);
  if (std::ranges::count(options_.stop_tokens, token) > 0) {
    result.finish = Finish::kStopToken;
  } else if (!goes_on) {
    result.finish = Finish::kCallback;
  } else if (std::ssize(result.tokens) == text.room) {
    result.finish = text.at_the_end;
  } else {
    return;
  }
  text.ended = true;
  ++num_ended_;
}

}  // namespace

const char* finish_reason(Finish finish) {
  if (finish == Finish::kLength) return "length";
  return finish == Finish::kPositions ? "positions" : "stop";
}

struct Generator::Kept {
  Passes passes;
};

Generator::Generator(const model::Model& model, tensor::Units& units, at::Device device)
    : kept_(new Kept{{model, units, device}}) {}
Generator::~Generator() = default;

std::vector<Continuation> Generator::generate(std::span<const Request> requests,
                                              const GenerateOptions& options) {
  options.sampling.check();
  if (options.max_new_tokens < 1) {
    throw UserError(
        fmt::format("max_new_tokens is {}, expected at least 1", options.max_new_tokens));
  }
  auto& passes = kept_->passes;
  const at::NoGradGuard no_grad;
  const model::StandingWeights standing(passes.model());
  auto results = Run(passes, requests, options).results();
  if (options.weights_move || passes.model().has_magnitudes()) passes.forget();
  return results;
}

std::vector<Continuation> generate(const model::Model& model, tensor::Units& units,
                                   at::Device device, std::span<const Request> requests,
                                   const GenerateOptions& options) {
  return Generator(model, units, device).generate(requests, options);
}

}  // namespace skein::rollout
