// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/label_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/parallel.h"
#include "skein/core/stop_signals.h"

namespace skein::data {
namespace {

constexpr double kMostWithoutTarget = 0.05;
constexpr int64_t kSamplesAtOnce = 4096;
constexpr int64_t kBarWidth = 40;

class Histogram {
 public:
  void add(int64_t length) {
    size_t bin = 0;
    while (int64_t{1} << bin < length) ++bin;
    while (bins_.size() <= bin) bins_.push_back({.longest = int64_t{1} << bins_.size()});
    ++bins_[bin].rows;
  }

  std::vector<LabelAudit::Bin> take() {
    const auto is_used = [](const LabelAudit::Bin& bin) { return bin.rows > 0; };
    bins_.erase(bins_.begin(), std::ranges::find_if(bins_, is_used));
    return std::move(bins_);
  }

 private:
  std::vector<LabelAudit::Bin> bins_;
};

// What is left out of files that two splits share is told with the training rows.
std::vector<LabelAudit::Bin> lengths_of(const SplitRows& split) {
  const auto& rows = split.source->prepared();
  Histogram lengths;
  const auto add = [&](int64_t row) {
    for (int64_t i = 0; i < answers_of(rows.kind); ++i) lengths.add(rows.entry(row, i).length);
  };
  for (int64_t i = 0; i < split.set.count(); ++i) add(split.source->row_of(split.set.sample(i)));
  if (!split.is_held_out) {
    for (const int64_t row : split.source->left_out()) add(row);
  }
  return lengths.take();
}

// What some of the samples say.
struct Part {
  int64_t tokens = 0, end_trained = 0, several_begins = 0, empty_turns = 0, cut = 0, plain = 0;
  tensor::Counts counts = {};
  int64_t margins = 0;
  double least_margin = 0, most_margin = 0;
  // Samples.
  int64_t first_without_end = -1, first_several_begins = -1, first_empty_turn = -1;
  int64_t first_plain = -1;
};

class SampleAudit {
 public:
  SampleAudit(const SplitRows& rows, const AuditOptions& tokens) : rows_(rows), wanted_(tokens) {}

  Part look_at(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) add(rows_.set.sample(i));
    return part_;
  }

 private:
  void add(int64_t sample) {
    const auto length = static_cast<size_t>(rows_.source->length(sample));
    tokens_.resize(length);
    targets_.resize(length);
    rows_.source->read(sample, tokens_, targets_);
    part_.tokens += static_cast<int64_t>(length);
    part_.counts += rows_.source->counts_of(sample);
    ends_.clear();
    rows_.source->append_ends(sample, ends_);
    size_t begin = 0;
    for (size_t i = 0; i < ends_.size(); ++i) {
      const auto own = static_cast<size_t>(ends_[i]) - begin;
      add_answer(sample, static_cast<int64_t>(i), std::span(tokens_).subspan(begin, own),
                 std::span(targets_).subspan(begin, own));
      begin += own;
    }
    if (rows_.source->kind() == RowKind::kPairs) add_margin(sample);
    if (!is_plain(rows_.source->prepared().rows.entry(rows_.source->answer_of(sample)))) return;
    ++part_.plain;
    if (part_.first_plain < 0) part_.first_plain = sample;
  }

  void add_answer(int64_t sample, int64_t answer, std::span<const int64_t> tokens,
                  std::span<const int64_t> targets) {
    const auto& rows = rows_.source->prepared().rows;
    const auto& entry = rows.entry(rows_.source->answer_of(sample, answer));
    part_.cut += int64_t{entry.length} > std::ssize(tokens);
    part_.empty_turns += empty_turns_of(entry);
    if (empty_turns_of(entry) > 0 && part_.first_empty_turn < 0) part_.first_empty_turn = sample;
    // No id is negative, so that tensor::kIgnore is none of them.
    const bool ends = std::ranges::any_of(
        targets, [&](int64_t target) { return target >= 0 && wanted_.is_end(target); });
    part_.end_trained += ends;
    if (!ends && part_.first_without_end < 0) part_.first_without_end = sample;
    if (!wanted_.begin || std::ranges::count(tokens, int64_t{*wanted_.begin}) <= 1) return;
    ++part_.several_begins;
    if (part_.first_several_begins < 0) part_.first_several_begins = sample;
  }

  void add_margin(int64_t sample) {
    const auto& rows = rows_.source->prepared().rows;
    const auto margin = margin_of(rows.entry(rows_.source->answer_of(sample, 1)));
    if (!margin) return;
    part_.least_margin = part_.margins == 0 ? *margin : std::min(part_.least_margin, *margin);
    part_.most_margin = part_.margins == 0 ? *margin : std::max(part_.most_margin, *margin);
    ++part_.margins;
  }

  const SplitRows& rows_;
  const AuditOptions& wanted_;
  Part part_;
  std::vector<int64_t> tokens_, targets_, ends_;
};

// Parts come in order: the first of anything stays.
void add(const Part& part, const RowsSource& source, LabelAudit& audit) {
  const auto keep_first = [&](int64_t sample, std::string& place) {
    if (sample >= 0 && place.empty()) place = source.place_of(sample);
  };
  audit.tokens += part.tokens;
  audit.targets += part.counts.targets;
  audit.chosen_targets += part.counts.chosen_targets;
  audit.desirable += part.counts.desirable;
  if (part.margins > 0) {
    const bool is_first = audit.margins == 0;
    audit.least_margin =
        is_first ? part.least_margin : std::min(audit.least_margin, part.least_margin);
    audit.most_margin = is_first ? part.most_margin : std::max(audit.most_margin, part.most_margin);
    audit.margins += part.margins;
  }
  audit.end_trained += part.end_trained;
  audit.several_begins += part.several_begins;
  audit.empty_turns += part.empty_turns;
  audit.cut += part.cut;
  audit.plain += part.plain;
  keep_first(part.first_without_end, audit.first_without_end);
  keep_first(part.first_several_begins, audit.first_several_begins);
  keep_first(part.first_empty_turn, audit.first_empty_turn);
  keep_first(part.first_plain, audit.first_plain);
}

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string histogram_text(const std::vector<LabelAudit::Bin>& bins) {
  int64_t most = 1;
  for (const auto& bin : bins) most = std::max(most, bin.rows);
  std::string text;
  for (const auto& bin : bins) {
    const int64_t width = (bin.rows * kBarWidth + most - 1) / most;
    std::string bar;
    for (int64_t i = 0; i < width; ++i) bar += "█";
    text += fmt::format("       up to {:>9} tokens {:>11}  {}\n", shown_count(bin.longest),
                        shown_count(bin.rows), bar);
  }
  return text;
}

// Targets of one answer of each pair.
double on_average(int64_t targets, int64_t pairs) {
  return static_cast<double>(targets) / static_cast<double>(pairs);
}

std::string pairs_text(const LabelAudit& audit) {
  std::string text;
  if (audit.samples > 0) {
    text += fmt::format(
        "       of each pair, {:.1f} tokens of the chosen answer and {:.1f} of the rejected one "
        "are "
        "trained on\n",
        on_average(audit.chosen_targets, audit.samples),
        on_average(audit.targets - audit.chosen_targets, audit.samples));
  }
  if (audit.margins > 0) {
    text += fmt::format("       margins from {:g} to {:g} in {} of {} pairs\n", audit.least_margin,
                        audit.most_margin, shown_count(audit.margins), shown_count(audit.samples));
  }
  if (audit.counts.equal > 0 && !audit.is_held_out) {
    text += fmt::format("       {} pairs have two equal answers (first {}): {}\n",
                        shown_count(audit.counts.equal), audit.first.equal,
                        audit.limits.equal_pairs == EqualPairs::kKeep
                            ? "trained on; equal_pairs=drop leaves them out"
                            : "left out; equal_pairs=keep trains on them");
  }
  return text;
}

// Good answers should weigh as much as bad ones, to a third more, as the authors of KTO advise. The
// weight that is to be changed is the one that was given, else the one that has to grow.
std::string balance_text(const LabelAudit& audit) {
  constexpr double kMost = 4.0 / 3;
  constexpr double kRounding = 0.01;  // of a weight that was typed as it was advised
  const double w = audit.chosen_weight, v = audit.rejected_weight;
  if (w == 0 || v == 0) {
    return fmt::format("; warning: {} answers have weight 0 and teach nothing",
                       w == 0 ? "desirable" : "undesirable");
  }
  const auto bad = static_cast<double>(audit.samples - audit.desirable);
  const double ratio = w * static_cast<double>(audit.desirable) / (v * bad);
  if (1 - kRounding <= ratio && ratio <= kMost * (1 + kRounding)) return "";
  const bool moves_chosen = (w == 1) == (v == 1) ? ratio < 1 : v == 1;
  const double least = moves_chosen ? w / ratio : v * ratio / kMost;
  return fmt::format("; {}={:.2f} to {:.2f} would balance them",
                     moves_chosen ? "kto_chosen_weight" : "kto_rejected_weight", least,
                     least * kMost);
}

std::string feedback_text(const LabelAudit& audit) {
  auto text =
      fmt::format("       {} of {} answers are desirable ({:.1f} %)", shown_count(audit.desirable),
                  shown_count(audit.samples), percent(audit.desirable, audit.samples));
  if (audit.desirable == 0 || audit.desirable == audit.samples) {
    return text + ": warning: answers of both kinds are needed to tell one from the other\n";
  }
  return text + balance_text(audit) + "\n";
}

std::string plain_text(const LabelAudit& audit) {
  if (!audit.has_template || audit.plain == 0) return "";
  return fmt::format(
      "       {} {} are plain text: no template is put around them; give messages (first {})\n",
      shown_count(audit.plain), plural_of(audit.kind), audit.first_plain);
}

}  // namespace

bool AuditOptions::is_end(int64_t id) const {
  return std::ranges::find(ends_of_turn, static_cast<uint32_t>(id)) != ends_of_turn.end();
}

LabelAudit LabelAudit::expecting(const AuditOptions& tokens, RowKind kind,
                                 const RowCounts& counts) {
  return {.kind = kind,
          .limits = {},
          .expects_end = kind != RowKind::kPrompts &&
                         (!tokens.ends_of_turn.empty() || !tokens.missing.empty()),
          .missing = tokens.missing,
          .has_template = tokens.has_template,
          .scores = tokens.scores,
          .chosen_weight = tokens.chosen_weight,
          .rejected_weight = tokens.rejected_weight,
          .counts = counts,
          .lengths = {},
          .first_without_end = {},
          .first_several_begins = {},
          .first_empty_turn = {},
          .first_plain = {},
          .first = {}};
}

LabelAudit audit_labels(const SplitRows& rows, const AuditOptions& tokens, int threads) {
  const auto& source = *rows.source;
  auto audit = LabelAudit::expecting(tokens, source.kind(), source.counts());
  audit.limits = source.limits();
  audit.is_held_out = rows.is_held_out;
  audit.lengths = lengths_of(rows);
  audit.samples = rows.set.count();
  audit.answers = audit.samples * answers_of(source.kind());
  audit.first = source.first_rows();
  std::vector<Part> parts(
      static_cast<size_t>((audit.samples + kSamplesAtOnce - 1) / kSamplesAtOnce));
  for_each_index(std::ssize(parts), threads, [&](int64_t i) {
    end_if_stop_waits();
    const int64_t begin = i * kSamplesAtOnce;
    parts[static_cast<size_t>(i)] =
        SampleAudit(rows, tokens).look_at(begin, std::min(begin + kSamplesAtOnce, audit.samples));
  });
  for (const auto& part : parts) add(part, source, audit);
  if (!audit.expects_end) audit.first_without_end.clear();
  return audit;
}

std::optional<std::string> LabelAudit::refusal_of_targets(Split split) const {
  const int64_t lost = counts.without_target + counts.prompt_too_long;
  if (percent(lost, counts.rows) <= 100 * kMostWithoutTarget) return std::nullopt;
  std::string why;
  const auto add = [&](int64_t count, const std::string& text) {
    if (count == 0) return;
    why += fmt::format("{}{} of {} {} of the {} data ({:.1f} %) have {}", why.empty() ? "" : "; ",
                       shown_count(count), shown_count(counts.rows), plural_of(kind),
                       split_name(split), percent(count, counts.rows), text);
  };
  add(counts.prompt_too_long,
      fmt::format("a prompt as long as cutoff_len={}, the first {}: no token of an answer is left; "
                  "give a larger cutoff_len, or excess_length_strategy=drop, which leaves out what "
                  "is longer",
                  limits.cutoff_len, first.prompt_too_long));
  add(counts.without_target,
      fmt::format("{}, the first {}: nothing in them is trained on; another template{} may give "
                  "them one",
                  kind == RowKind::kPairs ? "an answer without a target" : "no target",
                  first.without_target, kind == RowKind::kRows ? " or train_on_prompt" : ""));
  return why + " (skein data inspect shows rows)";
}

std::optional<std::string> LabelAudit::refusal_of_ends(Split split) const {
  if (split != Split::kTrain || answers == 0) return std::nullopt;
  // A score stands behind the last token, whatever it is.
  if (scores && cut == answers) {
    return fmt::format(
        "cutoff_len={} cuts every answer of the {} data: scores would stand where answers were "
        "cut, and not at their ends; give a larger cutoff_len (skein data inspect shows rows)",
        limits.cutoff_len, split_name(split));
  }
  if (!expects_end || end_trained > 0 || (scores && missing.empty())) return std::nullopt;
  return fmt::format(
      "in no {} of the {} data is the end of a turn trained on ({} is the first): the model "
      "would never {}; {} (skein data inspect shows rows)",
      kind == RowKind::kPairs ? "answer" : "row", split_name(split), first_without_end,
      scores ? "see one" : "stop",
      missing.empty() ? "give a template whose assistant turns include it, or a larger cutoff_len"
                      : missing);
}

std::optional<std::string> LabelAudit::refusal(Split split) const {
  if (kind == RowKind::kPrompts) return std::nullopt;
  const auto why = refusal_of_targets(split);
  return why ? why : refusal_of_ends(split);
}

std::string LabelAudit::prompts_text(Split split) const {
  auto text = fmt::format("{:5}  {} of {} prompts: {} tokens\n", split_name(split),
                          shown_count(samples), shown_count(counts.rows), shown_count(tokens));
  if (counts.too_long > 0 && !is_held_out) {
    text += fmt::format(
        "       {} prompts longer than max_prompt_length={} {}\n", shown_count(counts.too_long),
        limits.cutoff_len,
        limits.excess_length == ExcessLength::kDrop ? "left out" : "lost their beginning");
  }
  if (several_begins > 0) {
    text += fmt::format("       warning: {} prompts begin more than once (BOS), first {}\n",
                        shown_count(several_begins), first_several_begins);
  }
  return text + plain_text(*this) + histogram_text(lengths);
}

std::string LabelAudit::text(Split split) const {
  if (kind == RowKind::kPrompts) return prompts_text(split);
  auto text =
      fmt::format("{:5}  {} of {} {}: {} tokens, {} trained on ({:.1f} %)\n", split_name(split),
                  shown_count(samples), shown_count(counts.rows), plural_of(kind),
                  shown_count(tokens), shown_count(targets), percent(targets, tokens));
  if (kind == RowKind::kPairs) text += pairs_text(*this);
  if (kind == RowKind::kFeedback) text += feedback_text(*this);
  text += plain_text(*this);
  if (counts.too_long > 0 && !is_held_out) {
    text += fmt::format(
        "       {} {} longer than cutoff_len={} {}: {:.1f} % of the tokens and {:.1f} % of the "
        "targets lost\n",
        shown_count(counts.too_long), plural_of(kind), limits.cutoff_len,
        limits.excess_length == ExcessLength::kDrop ? "left out" : "cut short",
        percent(counts.tokens_lost, counts.tokens), percent(counts.targets_lost, counts.targets));
  }
  if (!is_held_out) {
    text += fmt::format("       {} {} without a target, left out\n",
                        shown_count(counts.without_target), plural_of(kind));
  }
  if (counts.prompt_too_long > 0 && !is_held_out) {
    text += fmt::format("       {} {} whose prompt is as long as cutoff_len={}, left out\n",
                        shown_count(counts.prompt_too_long), plural_of(kind), limits.cutoff_len);
  }
  if (expects_end) {
    text += fmt::format("       the end of a turn is trained on in {} of {} {}{}\n",
                        shown_count(end_trained), shown_count(answers),
                        kind == RowKind::kPairs ? "answers" : "rows",
                        first_without_end.empty() ? "" : ", first not in " + first_without_end);
  }
  if (expects_end && end_trained == 0 && split == Split::kEval) {
    text +=
        "       warning: no turn of these rows is measured to its end: their loss says nothing "
        "about "
        "stopping; a larger cutoff_len keeps the ends of long rows\n";
  }
  if (!expects_end) {
    text +=
        "       warning: nothing ends a turn or a text: the tokenizer names no eos_token, and the "
        "model does not learn to stop\n";
  }
  if (several_begins > 0) {
    text += fmt::format("       warning: {} {} begin more than once (BOS), first {}\n",
                        shown_count(several_begins), kind == RowKind::kPairs ? "answers" : "rows",
                        first_several_begins);
  }
  if (empty_turns > 0) {
    text += fmt::format(
        "       warning: {} assistant turns render to nothing: they are empty, or the template "
        "leaves out their content or tool calls; first {}\n",
        shown_count(empty_turns), first_empty_turn);
  }
  return text + histogram_text(lengths);
}

LabelAudit log_labels(const SplitRows& rows, Split split, const AuditOptions& tokens, int threads) {
  auto audit = audit_labels(rows, tokens, threads);
  auto text = audit.text(split);
  text.pop_back();  // a log ends its lines itself
  log_info("{} of the data\n{}", audit.kind == RowKind::kPrompts ? "prompts" : "labels", text);
  return audit;
}

void require_labels(const RunRows& rows, const AuditOptions& tokens, int threads) {
  const auto require = [&](const SplitRows& split_rows, Split split) {
    const auto audit = log_labels(split_rows, split, tokens, threads);
    if (const auto why = audit.refusal(split)) throw IoError(*why);
  };
  require(rows.train, Split::kTrain);
  if (rows.eval) require(*rows.eval, Split::kEval);
}

}  // namespace skein::data
