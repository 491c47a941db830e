// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Is a run about to be trained on what its owner believes? Looks through all labels of a split.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "skein/data/rows/row_source.h"
#include "skein/data/rows/run_rows.h"
#include "skein/data/source_files.h"

namespace skein::data {

// What the audit has to know of a run: the ids that it looks for, and what answers are there for.
struct AuditOptions {
  std::vector<uint32_t> ends_of_turn;  // any of them ends one; empty: nothing does
  // BOS, which a row has at most once; absent: there is none, or it ends turns too.
  std::optional<uint32_t> begin;
  std::string missing = {};  // what to type for the template's end of a turn to be a token
  std::vector<std::string> missing_tokens = {};  // those that the tokenizer lacks for it
  bool has_template = false;                     // conversations have one put around them
  bool scores = false;                           // what is trained scores answers and writes none
  // What a desirable answer counts, and an undesirable one (docs/kto.md).
  double chosen_weight = 1, rejected_weight = 1;

  bool is_end(int64_t id) const;
};

struct LabelAudit {
  struct Bin {
    int64_t longest = 0;  // rows of at most so many tokens, and more than the bin before
    int64_t rows = 0;     // of pairs: answers
    bool operator==(const Bin&) const = default;
  };

  RowKind kind = RowKind::kRows;
  RowLimits limits;
  bool expects_end = false;  // a turn should end with a token
  std::string missing;       // AuditOptions::missing, and so on
  bool has_template = false, scores = false;
  double chosen_weight = 1, rejected_weight = 1;
  RowCounts counts;          // of all rows of the split's files
  bool is_held_out = false;  // SplitRows::is_held_out
  // Of the split's rows, before anything is cut, with those that are left out of its files; powers
  // of two, none empty at an end.
  std::vector<Bin> lengths;
  // Of the split's samples, as they are trained on:
  int64_t samples = 0, tokens = 0, targets = 0;
  int64_t answers = 0;         // two of each pair, else as many as samples
  int64_t chosen_targets = 0;  // of pairs
  int64_t desirable = 0;       // of answers that were judged alone
  int64_t plain = 0;           // samples that no template is put around
  int64_t margins = 0;         // pairs that have one
  double least_margin = 0, most_margin = 0;
  // Answers:
  int64_t end_trained = 0;  // in which an end of turn is a target
  int64_t cut = 0;          // that lost their end to cutoff_len
  int64_t several_begins = 0;
  int64_t empty_turns = 0;  // of the assistant, of which nothing but their end is a target
  // "FILE:ROW", empty: there is none
  std::string first_without_end, first_several_begins, first_empty_turn, first_plain;
  FirstRows first;  // of those that are counted in `counts`

  // Nothing but the counts is known yet.
  static LabelAudit expecting(const AuditOptions& tokens, RowKind kind, const RowCounts& counts);

  // Why the run must not start; absent: it may. Ends of turns that no row of the evaluation has are
  // no reason: they are told in text(). Of prompts there is none.
  std::optional<std::string> refusal(Split split) const;
  // A few lines for people.
  std::string text(Split split) const;

  bool operator==(const LabelAudit&) const = default;

 private:
  std::optional<std::string> refusal_of_targets(Split split) const;
  std::optional<std::string> refusal_of_ends(Split split) const;
  std::string prompts_text(Split split) const;
};

// The same for any number of threads.
LabelAudit audit_labels(const SplitRows& rows, const AuditOptions& tokens, int threads);

// audit_labels(), and logs what it found.
LabelAudit log_labels(const SplitRows& rows, Split split, const AuditOptions& tokens, int threads);

// The same for both splits; throws IoError when one must not be trained on.
void require_labels(const RunRows& rows, const AuditOptions& tokens, int threads);

}  // namespace skein::data
